#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace waggle {

using byte_span = std::span<const std::byte>;

/// Opaque bytes in a std::string: the type of protobuf `bytes` fields and of record values.
inline byte_span as_byte_span(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string_view as_string_view(byte_span bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Lower-case hexadecimal, two digits a byte.
std::string to_hex(byte_span bytes);

/// The inverse of `to_hex`; accepts both cases. Nothing for an odd length or another character.
std::optional<std::string> from_hex(std::string_view hex);

/// Bulk bytes that several owners share and that do not change once they are shared. `data` may
/// alias a larger buffer (shared_ptr's aliasing constructor), so that a part of a vector is sent
/// without a copy.
struct payload {
  std::shared_ptr<const std::byte> data;
  std::size_t size = 0; // bytes
  /// The bytes lie in memory that another process can still write to, although it must not: reading
  /// them twice may give different values. False after a copy.
  bool sender_can_write = false;

  [[nodiscard]] byte_span view() const { return {data.get(), size}; }
  [[nodiscard]] bool empty() const { return size == 0; }
};

/// A new payload that holds a copy of `bytes`.
payload copy_to_payload(byte_span bytes);

/// A payload over all elements of `*values`, which it keeps alive. No copy.
template <class Container>
payload payload_of(std::shared_ptr<const Container> values) {
  auto bytes = std::as_bytes(std::span{*values});
  return {std::shared_ptr<const std::byte>{std::move(values), bytes.data()}, bytes.size()};
}

/// The bytes [offset, offset + size) of `whole`, sharing its memory. REQUIRES: they lie within it.
inline payload slice(const payload& whole, std::size_t offset, std::size_t size) {
  return {std::shared_ptr<const std::byte>{whole.data, whole.data.get() + offset}, size,
          whole.sender_can_write};
}

namespace literals {
constexpr std::size_t operator""_KiB(unsigned long long n) {
  return static_cast<std::size_t>(n) << 10U;
}
constexpr std::size_t operator""_MiB(unsigned long long n) {
  return static_cast<std::size_t>(n) << 20U;
}
constexpr std::size_t operator""_GiB(unsigned long long n) {
  return static_cast<std::size_t>(n) << 30U;
}
} // namespace literals
using namespace literals;

} // namespace waggle
