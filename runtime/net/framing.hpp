#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "runtime/core/bytes.hpp"
#include "runtime/core/frame_limits.hpp"
#include "runtime/core/result.hpp"

namespace waggle::net {

/// What a frame is for. Values travel.
enum class frame_kind : std::uint8_t {
  message = 0,   // header: the message; body: a part's or a state chunk's bytes
  window = 1,    // header: 8 bytes, the number of body bytes granted, little-endian
  handshake = 2, // header: HandshakeMessage; never a body
  // Between two peers on one host (runtime/net/local_path.hpp):
  offer = 3,     // header: where the other end may connect, and the nonce that identifies it there
  reference = 4, // header: memory_reference, then the message; the body lies in shared memory
  release = 5,   // header: an 8-byte id for each reference whose memory is no longer read
  // A body in pieces, so that control frames can be sent between them:
  opening = 6, // header: the message; `body bytes` is the body's size, none of it follows here
  slice = 7,   // no header; body: the next bytes of the opened body
  denial = 8,  // header: why the sender ends the link (write_denial)
};

/// A body in memory that both ends map, little-endian:
///
///     segment (4) | bytes (4) | offset (8) | id (8)
struct memory_reference {
  static constexpr std::size_t size = 24;

  std::uint32_t segment = 0;
  std::uint32_t bytes = 0;
  std::uint64_t offset = 0; // in the segment
  std::uint64_t id = 0;     // chosen by the sender, returned by `release`
};

static_assert(sizeof(memory_reference) == memory_reference::size, "written as it is in memory");

inline std::string write_reference(const memory_reference& reference) {
  return {reinterpret_cast<const char*>(&reference), memory_reference::size};
}

/// REQUIRES: 24 bytes.
inline memory_reference read_reference(std::string_view bytes) {
  memory_reference reference;
  std::memcpy(&reference, bytes.data(), memory_reference::size);
  return reference;
}

constexpr std::size_t offer_bytes_max = 128;
constexpr std::size_t denial_bytes_max = 1024;
constexpr std::size_t releases_max = 1024;

/// The sixteen bytes before every frame, little-endian:
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

/// Checks magic, kind and sizes, so that nothing is allocated for a bad frame. REQUIRES: 16 bytes.
/// Fails with ec::malformed or ec::oversize.
inline result<frame_prefix> read_prefix(byte_span bytes) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, bytes.data(), 4);
  auto kind = std::to_integer<std::uint8_t>(bytes[4]);
  bool zeros = bytes[5] == std::byte{0} && bytes[6] == std::byte{0} && bytes[7] == std::byte{0};
  if (magic != frame_prefix::magic || kind > 8 || !zeros)
    return failure{ec::malformed, "these bytes are not a frame"};
  frame_prefix prefix{static_cast<frame_kind>(kind), 0, 0};
  std::memcpy(&prefix.header_bytes, bytes.data() + 8, 4);
  std::memcpy(&prefix.body_bytes, bytes.data() + 12, 4);
  auto header_max = frame_header_bytes_max;
  if (prefix.kind == frame_kind::reference)
    header_max += memory_reference::size;
  if (prefix.header_bytes > header_max || prefix.body_bytes > frame_body_bytes_max)
    return failure{ec::oversize, "a frame of " + std::to_string(prefix.header_bytes) + " + "
                                   + std::to_string(prefix.body_bytes) + " bytes"};
  bool pieces = prefix.kind == frame_kind::opening || prefix.kind == frame_kind::slice;
  if (prefix.kind != frame_kind::message && !pieces && prefix.body_bytes != 0)
    return failure{ec::malformed, "a body in a frame of a kind without one"};
  if (pieces
      && (prefix.body_bytes == 0 || (prefix.kind == frame_kind::slice && prefix.header_bytes != 0)))
    return failure{ec::malformed, "a piece of a body of the wrong size"};
  if (prefix.kind == frame_kind::denial && prefix.header_bytes > denial_bytes_max)
    return failure{ec::malformed, "a denial that is too long"};
  if (prefix.kind == frame_kind::window && prefix.header_bytes != 8)
    return failure{ec::malformed, "a window update of the wrong size"};
  if ((prefix.kind == frame_kind::offer && prefix.header_bytes > offer_bytes_max)
      || (prefix.kind == frame_kind::reference && prefix.header_bytes < memory_reference::size)
      || (prefix.kind == frame_kind::release
          && (prefix.header_bytes % 8 != 0 || prefix.header_bytes > 8 * releases_max)))
    return failure{ec::malformed, "a frame about shared memory of the wrong size"};
  return prefix;
}

} // namespace waggle::net
