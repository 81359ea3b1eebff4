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
  /// Numbers, ids, and ranges of these.
  template <class... Fields>
  byte_writer& put(const Fields&... fields) {
    (put_one(fields), ...);
    return *this;
  }
  byte_writer& put_raw(std::string_view bytes) {
    text_.append(bytes);
    return *this;
  }
  /// Its length, as a `Size`, in front of it.
  template <class Size>
  byte_writer& put_text(std::string_view text) {
    return put(static_cast<Size>(text.size())).put_raw(text);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }
  [[nodiscard]] const std::string& text() const { return text_; }

private:
  template <class Field>
  void put_one(const Field& field) {
    if constexpr (std::is_arithmetic_v<Field>)
      text_.append(reinterpret_cast<const char*>(&field), sizeof field);
    else if constexpr (requires { field.raw(); })
      put_raw(field.raw());
    else if constexpr (requires { field.value(); })
      put_one(field.value());
    else
      for (const auto& each : field)
        put_one(each);
  }

  std::string text_;
};

/// Reads them back. A read past the end returns zeros and makes `ok()` false permanently, so that a
/// parser needs only one check, at its end.
class byte_reader {
public:
  explicit byte_reader(std::string_view bytes) : rest_(bytes) {}
  explicit byte_reader(byte_span bytes) : rest_(as_string_view(bytes)) {}

  template <class Field>
  Field get() {
    Field field{};
    read(field);
    return field;
  }
  /// What `put` takes. Ranges have their size already.
  template <class... Fields>
  void read(Fields&... fields) {
    (read_one(fields), ...);
  }
  template <class Size>
  std::string_view get_text() {
    return get_raw(get<Size>());
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
  template <class Field>
  void read_one(Field& field) {
    if constexpr (std::is_same_v<Field, bool>)
      field = get<std::uint8_t>() != 0;
    else if constexpr (std::is_arithmetic_v<Field>) {
      if (auto raw = get_raw(sizeof field); ok_)
        std::memcpy(&field, raw.data(), sizeof field);
    } else if constexpr (requires { Field::from_raw({}); })
      field = Field::from_raw(get_raw(Field::size)).value_or(Field{});
    else if constexpr (requires { typename Field::rep; })
      field = Field{get<typename Field::rep>()};
    else
      for (auto& each : field)
        read_one(each);
  }

  std::string_view rest_;
  bool ok_ = true;
};

} // namespace waggle
