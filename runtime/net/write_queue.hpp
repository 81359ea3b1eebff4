#pragma once

// Internal to runtime/net: what waits to be written to one connection.

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/core/time.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

/// One frame, or a slice of a body, on its way out.
struct outgoing {
  std::array<std::byte, frame_prefix::size> prefix{};
  frame content;
  std::size_t lent = 0;   // bytes of a body that was referred to, not in `content`
  bool bulk = false;      // of the bulk lane
  bool completes = false; // nothing of its frame is left to be written
};

/// Two lanes: control frames overtake bulk frames, which wait for the peer's window.
///
/// On a long link a large body is written in slices, so that a control frame waits for one slice,
/// not for the body. A slice is as much as the link takes in a few milliseconds, found out by how
/// long the last ones took. On links within a host bodies are written whole.
///
/// `offer` may be called from any thread; everything else runs on the I/O thread.
class write_queue {
public:
  struct settings {
    std::size_t control_bytes_max = 16_MiB; // more: offer() says no
    std::size_t bulk_frames_max = 65'536;
    std::size_t window_bytes = 32_MiB; // of bodies that the peer takes without granting more
    bool slices = false;
  };
  enum class admission { refused, admitted, first }; // first: take_offered() must be called soon

  static constexpr std::size_t slice_bytes_min = 16_KiB;
  static constexpr std::size_t slice_bytes_max = 1_MiB;

  explicit write_queue(settings s) : settings_(s), window_(s.window_bytes) {}

  admission offer(frame f);
  /// Moves what was offered into the lanes.
  void take_offered();
  /// A control frame of the connection's own.
  void add(frame_kind kind, std::string header);
  /// The peer takes `bytes` more. False: more than it ever may.
  [[nodiscard]] bool open_window(std::size_t bytes);

  /// Puts into `batch` what to write next, in one go; nothing: nothing may be written now.
  /// @param bulk_too false: control frames only, and whatever began stays unfinished.
  /// @param refer may replace a body by a reference to it, before it is written.
  void next(std::vector<outgoing>& batch, bool bulk_too,
            const std::function<void(outgoing&)>& refer);
  /// `batch` was written, `took` after next() gave it.
  void written(const std::vector<outgoing>& batch, steady_time::duration took);

  /// Bulk frames are not sent any more; of one that has begun the rest is not.
  void drop_bulk();
  /// Everything that was offered or added was written. Any thread.
  [[nodiscard]] bool empty() const {
    return control_bytes_.load() == 0 && bulk_frames_.load() == 0;
  }
  void clear();

  /// Bytes that one slice has now.
  [[nodiscard]] std::size_t slice_bytes() const { return slice_bytes_; }

private:
  const settings settings_;
  std::deque<outgoing> control_;
  std::deque<outgoing> bulk_;
  payload unsent_; // of the body that is being sliced: what no slice has had yet
  std::size_t window_;
  std::size_t slice_bytes_ = 64_KiB;

  std::mutex offered_mutex_;
  std::vector<frame> offered_; // guarded by offered_mutex_
  bool announced_ = false;     // guarded by offered_mutex_: take_offered() is going to be called
  std::atomic<std::size_t> control_bytes_{0};
  std::atomic<std::size_t> bulk_frames_{0};
};

} // namespace waggle::net
