#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "runtime/core/time.hpp"

namespace waggle {

/// How much comes in a second of wall time, of what comes in lumps, such as the samples of an
/// update. It is measured from lump to lump, over about a window, so it does not depend on the
/// moment at which one asks; where no lump comes for longer than usual, it falls. Not thread-safe.
class windowed_rate {
public:
  static constexpr std::size_t marks_max = 32; // about

  explicit windowed_rate(steady_time::duration window = std::chrono::seconds{30})
    : window_(window) {}

  /// The first lump began to grow then. No effect later.
  void begin(steady_time when) {
    if (marks_.empty())
      marks_.push_back(last_ = {when, 0, 0});
  }
  /// @param when not before the call before; an earlier time counts as that.
  void add(double amount, steady_time when) {
    if (marks_.empty())
      return begin(when);
    last_ = {std::max(when, last_.when), last_.sum + amount, last_.lumps + 1};
    if (last_.when - marks_.back().when >= window_ / static_cast<int>(marks_max))
      marks_.push_back(last_);
    while (marks_.size() > 2 && marks_[1].when <= last_.when - window_)
      marks_.pop_front();
  }
  /// Nothing: no lump has come yet.
  [[nodiscard]] std::optional<double> per_second(steady_time now) const {
    if (marks_.empty() || last_.lumps == marks_.front().lumps || last_.when == marks_.front().when)
      return std::nullopt;
    const auto& first = marks_.front();
    auto usual = (last_.when - first.when) / static_cast<std::int64_t>(last_.lumps - first.lumps);
    auto until = std::max(last_.when, now - 2 * usual);
    return (last_.sum - first.sum) / seconds_of(until - first.when);
  }

private:
  struct mark {
    steady_time when;
    double sum = 0;
    std::uint64_t lumps = 0;
  };
  steady_time::duration window_;
  std::deque<mark> marks_; // the first one not much older than the window
  mark last_;
};

} // namespace waggle
