#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle::net {

/// What a frame is for. Values travel.
enum class frame_kind : std::uint8_t {
  message = 0,   // header: wire::Header; body: a part's or a state chunk's bytes
  window = 1,    // header: 8 bytes, the number of body bytes granted, little-endian
  handshake = 2, // header: HandshakeMessage; never a body
};

/// The sixteen bytes in front of every frame, little-endian:
///
///     magic "WGG1" (4) | kind (1) | zero (3) | header bytes (4) | body bytes (4)
struct frame_prefix {
  static constexpr std::size_t size = 16;
  static constexpr std::uint32_t magic = 0x31474757; // "WGG1"

  frame_kind kind = frame_kind::message;
  std::uint32_t header_bytes = 0;
  std::uint32_t body_bytes = 0;
};

inline std::array<std::byte, frame_prefix::size> write_prefix(const frame_prefix& prefix) {
  std::array<std::byte, frame_prefix::size> out{};
  std::memcpy(out.data(), &frame_prefix::magic, 4);
  out[4] = static_cast<std::byte>(prefix.kind);
  std::memcpy(out.data() + 8, &prefix.header_bytes, 4);
  std::memcpy(out.data() + 12, &prefix.body_bytes, 4);
  return out;
}

/// Checks magic, kind and sizes before anybody allocates for them. REQUIRES: 16 bytes.
/// Fails with ec::malformed or ec::oversize.
inline result<frame_prefix> read_prefix(byte_span bytes) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, bytes.data(), 4);
  auto kind = std::to_integer<std::uint8_t>(bytes[4]);
  bool zeros = bytes[5] == std::byte{0} && bytes[6] == std::byte{0} && bytes[7] == std::byte{0};
  if (magic != frame_prefix::magic || kind > 2 || !zeros)
    return failure{ec::malformed, "these bytes are no frame"};
  frame_prefix prefix{static_cast<frame_kind>(kind), 0, 0};
  std::memcpy(&prefix.header_bytes, bytes.data() + 8, 4);
  std::memcpy(&prefix.body_bytes, bytes.data() + 12, 4);
  if (prefix.header_bytes > wire::header_bytes_max || prefix.body_bytes > wire::body_bytes_max)
    return failure{ec::oversize, "a frame of " + std::to_string(prefix.header_bytes) + " + "
                                   + std::to_string(prefix.body_bytes) + " bytes"};
  if (prefix.kind != frame_kind::message && prefix.body_bytes != 0)
    return failure{ec::malformed, "a body where none belongs"};
  if (prefix.kind == frame_kind::window && prefix.header_bytes != 8)
    return failure{ec::malformed, "a window update of the wrong size"};
  return prefix;
}

} // namespace waggle::net
