#pragma once

// Internal to runtime/net: parses the bytes of one connection into frames.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/receive_window.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

struct arrival {
  /// opening, slice: part of an incomplete body; `content` is empty. The last slice of a body is
  /// reported as the complete message.
  frame_kind kind = frame_kind::message;
  frame content;
  std::size_t wire_bytes = 0; // with prefixes; for a sliced body, only this piece
  bool data = false;          // wire_bytes includes bytes of a body
};

/// Turns untrusted bytes into frames. It has no socket: the caller fills `room`, reports it with
/// `filled`, and calls `next` until it returns nothing.
///
///     handshake frames ── open() ──► all others
///                                      │  message with a body: window, memory, then its bytes
///                                      │  opening: window and memory; its bytes come in slices,
///                                      ▼  between which only frames without a body may come
///
/// Headers are read into a buffer. Bodies are read directly into their final memory, except for the
/// bytes that arrived together with the header. Sizes are checked before anything is allocated: at
/// most one header (frame_header_bytes_max) and one window of bodies are held. Not thread-safe.
class frame_reader {
public:
  /// Returns the memory for a body of `bytes` bytes. Never null.
  using memory_source =
    std::function<std::shared_ptr<std::byte>(const std::string& header, std::size_t bytes)>;

  /// `early`: what was read before the reader existed. `window_bytes`: how many body bytes the peer
  /// may send without a further grant.
  frame_reader(std::string_view early, std::size_t window_bytes, memory_source memory);

  /// The handshake is done; accept all other frames. Called once.
  void open() { open_ = true; }

  /// Before that: the next messages of the handshake may have so many bytes.
  void allow_handshake(std::size_t bytes) { handshake_max_ = bytes; }

  /// Where to write the next bytes; never empty.
  /// REQUIRES: `next` returned nothing since the last `filled`.
  [[nodiscard]] std::span<std::byte> room();
  /// The first `bytes` bytes of `room` were written. REQUIRES: not more than its size.
  void filled(std::size_t bytes);

  /// The next frame or piece; nothing: more bytes are needed. Fails with ec::malformed, oversize or
  /// protocol_violation; the connection is unusable afterwards.
  [[nodiscard]] result<std::optional<arrival>> next();

  /// Bodies that arrive through shared memory count against the same window.
  [[nodiscard]] receive_window& window() { return window_; }

  /// The size of the header that is arriving, if `room` has to make more room for it; otherwise 0.
  [[nodiscard]] std::size_t long_header() const;

  /// A body has begun and is not complete.
  [[nodiscard]] bool amid_body() const { return body_.has_value(); }
  /// Releases an incomplete body, and the buffer: a link that has ended may be kept. REQUIRES:
  /// nothing writes to `room` any more, and only the destructor and `buffer_bytes` are called
  /// afterwards.
  void abandon_body();
  /// The memory that headers are read into.
  [[nodiscard]] std::size_t buffer_bytes() const { return buffer_ ? capacity_ : 0; }

private:
  struct partial_body {
    std::string header;
    std::shared_ptr<std::byte> memory;
    std::size_t size = 0;
    std::size_t here = 0; // bytes that were read
  };

  /// Why a frame is not allowed now; null: it is allowed.
  [[nodiscard]] const char* misplaced(const frame_prefix& prefix) const;
  result<std::optional<arrival>> begin_frame();
  arrival end_piece();
  void move_to(std::shared_ptr<std::byte> buffer, std::size_t capacity);

  const memory_source memory_;
  receive_window window_;
  bool open_ = false;
  std::size_t handshake_max_; // bytes of a message

  // [begin_, end_) is read but not parsed. Grows to the size of a long header while that arrives.
  std::size_t capacity_;
  std::shared_ptr<std::byte> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  std::optional<partial_body> body_;
  // Size of the frame whose body (or piece of one) is being read; 0: between two frames.
  std::size_t wire_bytes_ = 0;
  std::size_t due_ = 0; // bytes of it that have not arrived
};

} // namespace waggle::net
