#pragma once

#include <algorithm>
#include <cstddef>

namespace waggle::net {

/// How much of bodies a peer may send before we have dealt with what it sent. Bounds what a link
/// makes us hold. Not thread-safe.
class receive_window {
public:
  explicit receive_window(std::size_t bytes) : bytes_(bytes) {}

  /// A body of `bytes` is about to come. False: the peer overran its window; nothing was taken.
  [[nodiscard]] bool take(std::size_t bytes) {
    if (bytes > bytes_ - taken_)
      return false;
    taken_ += bytes;
    return true;
  }

  /// `bytes` of what was taken were dealt with; more than was taken is all of it. What the peer is
  /// to be granted now: few large steps, 0 in between. At least three quarters are the peer's when
  /// everything was dealt with.
  [[nodiscard]] std::size_t give_back(std::size_t bytes) {
    untold_ += std::min(bytes, taken_ - untold_);
    if (untold_ == 0 || untold_ < bytes_ / 4)
      return 0;
    auto granted = untold_;
    taken_ -= granted;
    untold_ = 0;
    return granted;
  }

private:
  // Invariant: untold_ <= taken_ <= bytes_.
  const std::size_t bytes_;
  std::size_t taken_ = 0;  // sent, and not granted again
  std::size_t untold_ = 0; // of those: dealt with
};

} // namespace waggle::net
