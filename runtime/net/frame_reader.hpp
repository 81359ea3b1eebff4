#pragma once

// Internal to runtime/net: what the bytes of one connection say.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/receive_window.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

/// A frame that was read, or a piece of one.
struct arrival {
  /// opening, slice: of a body that is not whole yet; `content` is empty. Its last slice comes as
  /// the message that it makes whole.
  frame_kind kind = frame_kind::message;
  frame content;
  std::size_t wire_bytes = 0; // with prefixes; of a sliced body: of this piece
  bool data = false;          // bytes of a body are among them
};

/// Turns a stranger's bytes into frames, without a socket: whoever has one fills `room`, says so
/// with `filled`, and takes what `next` gives until that is nothing.
///
///     handshake frames ── open() ──► all others
///                                      │  message with a body: window, memory, then its bytes
///                                      │  opening: window and memory; its bytes come in slices,
///                                      ▼  between which only frames without a body may come
///
/// Headers are read to a buffer; bodies, but for what came with their header, to where they stay.
/// What frames say of their sizes is checked before anything is allocated for them: at most one
/// header (header_bytes_max) and a window of bodies are held. Not thread-safe.
class frame_reader {
public:
  /// Where a body of `bytes` is to lie. Never null.
  using memory_source =
    std::function<std::shared_ptr<std::byte>(const std::string& header, std::size_t bytes)>;

  /// `early`: what was read before there was a reader. `window_bytes`: of bodies that the peer may
  /// send without being granted more.
  frame_reader(std::string_view early, std::size_t window_bytes, memory_source memory);

  /// The handshake is over. Called once.
  void open() { open_ = true; }

  /// Where the next bytes belong, never empty. REQUIRES: `next` gave nothing since `filled`.
  [[nodiscard]] std::span<std::byte> room();
  /// The first `bytes` of `room` are there. REQUIRES: no more than it has.
  void filled(std::size_t bytes);

  /// What comes next; nothing: more bytes are needed. Fails with ec::malformed, oversize or
  /// protocol_violation: then the connection is of no use any more.
  [[nodiscard]] result<std::optional<arrival>> next();

  /// Bodies that come another way than by this connection share the window.
  [[nodiscard]] receive_window& window() { return window_; }

  /// A body has begun and is not whole yet.
  [[nodiscard]] bool amid_body() const { return body_.has_value(); }
  /// Lets go of a body of which not all is here. REQUIRES: nobody writes to `room` any more;
  /// nothing but the destructor is called afterwards.
  void abandon_body() { body_.reset(); }

private:
  struct partial_body {
    std::string header;
    std::shared_ptr<std::byte> memory;
    std::size_t size = 0;
    std::size_t here = 0; // bytes that were read
  };

  /// Why a frame may not come now; null: it may.
  [[nodiscard]] const char* misplaced(const frame_prefix& prefix) const;
  result<std::optional<arrival>> begin_frame();
  arrival end_piece();

  const memory_source memory_;
  receive_window window_;
  bool open_ = false;

  std::vector<std::byte> buffer_; // read, not looked at: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;

  std::optional<partial_body> body_;
  // Of the frame whose body, or piece of one, is being read; 0: between two frames.
  std::size_t wire_bytes_ = 0;
  std::size_t due_ = 0; // bytes of it that are still to come
};

} // namespace waggle::net
