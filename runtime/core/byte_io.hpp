#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/core/ids.hpp"

namespace waggle {

static_assert(std::endian::native == std::endian::little,
              "formats are little-endian; a big-endian machine needs byte swaps here");

/// For hashes over numbers.
inline std::array<std::byte, 8> little_endian(std::uint64_t number) {
  std::array<std::byte, 8> bytes{};
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

/// Writes fixed-width little-endian fields one after another.
class byte_writer {
public:
  template <class Number>
  requires std::is_arithmetic_v<Number> byte_writer& put(Number value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    text_.append(raw, sizeof value);
    return *this;
  }
  byte_writer& put_raw(std::string_view bytes) {
    text_.append(bytes);
    return *this;
  }
  template <class Tag, std::size_t Size>
  byte_writer& put(const byte_id<Tag, Size>& id) {
    return put_raw(id.raw());
  }
  [[nodiscard]] std::string take() { return std::move(text_); }
  [[nodiscard]] const std::string& text() const { return text_; }

private:
  std::string text_;
};

/// Reads them back. A read past the end returns zeros and makes `ok()` false permanently, so that a
/// parser needs only one check, at its end.
class byte_reader {
public:
  explicit byte_reader(std::string_view bytes) : rest_(bytes) {}
  explicit byte_reader(byte_span bytes) : rest_(as_string_view(bytes)) {}

  template <class Number>
  requires std::is_arithmetic_v<Number> Number get() {
    Number value{};
    auto raw = get_raw(sizeof value);
    if (ok_)
      std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  template <class Id>
  requires requires { Id::size; }
  Id get() {
    auto id = Id::from_raw(get_raw(Id::size));
    return id.value_or(Id{});
  }
  std::string_view get_raw(std::size_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      return {};
    }
    auto out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

private:
  std::string_view rest_;
  bool ok_ = true;
};

} // namespace waggle
