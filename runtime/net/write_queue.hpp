#pragma once

// Internal to runtime/net: the frames that wait to be written to one connection.

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

/// One outgoing frame, or a slice of a body.
struct outgoing {
  std::array<std::byte, frame_prefix::size> prefix{};
  frame content;
  std::size_t lent = 0;   // bytes of a body that is sent by reference, not in `content`
  bool bulk = false;      // belongs to the bulk lane
  bool completes = false; // the last piece of its frame
};

/// Control frames overtake bulk frames, which wait for the peer's window. Bulk frames have two
/// lanes: while both wait, background bodies and the others get equal shares of the link, so that a
/// part of a round waits for a piece of a state, and not for the pieces queued before it. Without
/// that, rounds stall on a slow link that carries a download.
///
/// On a link to another machine a large body is written in slices, so that a control frame waits
/// for one slice, not for the whole body. A slice is what the link carries in a few milliseconds,
/// estimated from how long the last ones took. On links within a host, bodies are written whole.
///
/// `offer` may be called from any thread; everything else runs on the I/O thread.
class write_queue {
public:
  struct options {
    std::size_t control_bytes_max = 16_MiB; // beyond it, offer() refuses
    std::size_t bulk_frames_max = 65'536;
    std::size_t window_bytes = 32_MiB; // body bytes that the peer accepts without a further grant
    bool slices = false;
  };
  enum class admission { refused, admitted, first }; // first: take_offered() must be called soon

  static constexpr std::size_t slice_bytes_min = 16_KiB;
  static constexpr std::size_t slice_bytes_max = 1_MiB;

  explicit write_queue(options how) : how_(how), window_(how.window_bytes) {}

  admission offer(frame f);
  void take_offered();
  /// Adds a control frame of the connection itself.
  void add(frame_kind kind, std::string header);
  /// The peer grants `bytes` more. False: the window would exceed its maximum.
  [[nodiscard]] bool open_window(std::size_t bytes);

  /// Fills `batch` with what to write next in one operation; empty: nothing may be written now.
  /// @param bulk_too false: control frames only; a body that has begun stays unfinished.
  /// @param refer may replace a body with a reference to it before it is written.
  void next(std::vector<outgoing>& batch, bool bulk_too,
            const std::function<void(outgoing&)>& refer);
  /// `batch` was written, `took` after next() returned it.
  void written(const std::vector<outgoing>& batch, steady_time::duration took);

  /// Bulk frames are not sent any more, nor is the rest of one that has begun.
  void drop_bulk();
  /// True if everything that was offered or added was written. Any thread.
  [[nodiscard]] bool empty() const {
    return control_bytes_.load() == 0 && bulk_frames_.load() == 0;
  }
  void clear();

  /// The memory that the control frames take which were not written yet. Any thread.
  [[nodiscard]] std::size_t control_memory() const {
    return control_bytes_.load() + control_frames_.load() * sizeof(outgoing);
  }

  /// Body bytes in the background lane of which nothing was written yet. Any thread.
  [[nodiscard]] std::size_t background_bytes() const { return background_bytes_.load(); }

  /// Body bytes of all batches that were written. Any thread.
  [[nodiscard]] std::uint64_t body_bytes_written() const { return body_bytes_written_.load(); }

  [[nodiscard]] std::size_t slice_bytes() const { return slice_bytes_; }

private:
  [[nodiscard]] std::deque<outgoing>* next_lane();
  outgoing take_from(std::deque<outgoing>& lane);

  const options how_;
  std::deque<outgoing> control_;
  std::deque<outgoing> bulk_;
  std::deque<outgoing> background_;
  std::uint64_t lead_ = 0; // bytes that bulk_ was served more than background_ while both waited
  payload unsent_;         // the rest of the body that is being sliced
  std::size_t window_;
  std::size_t slice_bytes_ = 64_KiB;

  std::mutex offered_mutex_;
  std::vector<frame> offered_; // guarded by offered_mutex_
  bool announced_ = false;     // guarded by offered_mutex_: a call of take_offered() is pending
  std::atomic<std::size_t> control_bytes_{0};
  std::atomic<std::size_t> control_frames_{0};
  std::atomic<std::size_t> bulk_frames_{0};
  std::atomic<std::size_t> background_bytes_{0};
  std::atomic<std::uint64_t> body_bytes_written_{0};
};

} // namespace waggle::net
