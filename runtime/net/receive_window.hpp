#pragma once

#include <algorithm>
#include <cstddef>

namespace waggle::net {

/// How many body bytes a peer may send before we have processed earlier ones. Bounds the memory
/// that a link can use. Not thread-safe.
class receive_window {
public:
  explicit receive_window(std::size_t bytes) : bytes_(bytes) {}

  /// A body of `bytes` bytes is about to arrive. False: it exceeds the window; nothing was taken.
  [[nodiscard]] bool take(std::size_t bytes) {
    if (bytes > bytes_ - taken_)
      return false;
    taken_ += bytes;
    return true;
  }

  /// `bytes` of what was taken were processed; a larger number counts as everything taken. Returns
  /// how much to grant the peer now: few large steps, 0 in between. When everything was processed,
  /// the peer may send at least three quarters of the window.
  [[nodiscard]] std::size_t give_back(std::size_t bytes) {
    ungranted_ += std::min(bytes, taken_ - ungranted_);
    if (ungranted_ == 0 || ungranted_ < bytes_ / 4)
      return 0;
    auto granted = ungranted_;
    taken_ -= granted;
    ungranted_ = 0;
    return granted;
  }

private:
  // Invariant: ungranted_ <= taken_ <= bytes_.
  const std::size_t bytes_;
  std::size_t taken_ = 0;     // sent by the peer and not granted again
  std::size_t ungranted_ = 0; // of those: processed, but not granted yet
};

} // namespace waggle::net
