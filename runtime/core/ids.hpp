#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/core/bytes.hpp"
#include "runtime/core/strong.hpp"

namespace waggle {

/// `Size` bytes that name something; ordered like big-endian unsigned integers.
template <class Tag, std::size_t Size>
struct byte_id {
  static constexpr std::size_t size = Size;

  std::array<std::byte, Size> bytes{};

  friend auto operator<=>(const byte_id&, const byte_id&) = default;

  [[nodiscard]] byte_span view() const { return bytes; }
  [[nodiscard]] std::string_view raw() const { return as_string_view(bytes); }
  [[nodiscard]] bool is_zero() const {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  /// From exactly `Size` raw bytes; nothing for any other length.
  static std::optional<byte_id> from_raw(std::string_view raw) {
    if (raw.size() != Size)
      return std::nullopt;
    byte_id id;
    std::memcpy(id.bytes.data(), raw.data(), Size);
    return id;
  }

  /// From 2·`Size` hexadecimal digits.
  static std::optional<byte_id> parse(std::string_view hex) {
    auto raw = from_hex(hex);
    return raw ? from_raw(*raw) : std::nullopt;
  }
};

template <class Tag, std::size_t Size>
std::string to_string(const byte_id<Tag, Size>& id) {
  return to_hex(id.view());
}

/// The first eight digits: enough for a person to tell the peers of one run apart.
template <class Tag, std::size_t Size>
std::string short_name(const byte_id<Tag, Size>& id) {
  return to_hex(id.view().first(4));
}

/// Ed25519 public key.
using public_key = byte_id<struct public_key_tag, 32>;
/// SHA-256 of a peer's public key: its name in the DHT, in groups and in logs. Self-certifying.
using peer_id = byte_id<struct peer_id_tag, 32>;
/// SHA-256 of any content.
using digest = byte_id<struct digest_tag, 32>;
/// Names one all-reduce round; the same on all its members.
using round_id = byte_id<struct round_tag, 16>;

/// The number of virtual steps (optimizer steps of the whole swarm) so far. Not a pass over a data
/// set.
using epoch_id = strong<struct epoch_tag, std::uint64_t>;

} // namespace waggle

template <class Tag, std::size_t Size>
struct std::hash<waggle::byte_id<Tag, Size>> {
  std::size_t operator()(const waggle::byte_id<Tag, Size>& id) const noexcept {
    std::size_t value = 0; // ids are hashes or random: any eight bytes are well spread
    std::memcpy(&value, id.bytes.data(), sizeof value);
    return value;
  }
};
