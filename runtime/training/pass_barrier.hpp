#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "runtime/core/time.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// Whose passes an update waits for, where each member of the group makes one for each
/// (lane_clock::unit::each_member). A member that takes more than twice as long as the slowest one
/// took is silent: the update goes on without it, and later ones do not wait for it before it has
/// made a pass in time once. Not thread-safe.
class pass_barrier {
public:
  /// @param patience until the first update, when nobody knows how long a pass takes.
  explicit pass_barrier(std::chrono::nanoseconds patience) : patience_(patience) {}

  /// The next passes begin.
  void begin(steady_time now) {
    began_ = now;
    complete_ = false;
  }
  /// `without`: the other members that have made no pass since then. Returns how many of
  /// them are waited for.
  std::size_t missing(const std::vector<peer_id>& without, steady_time now) {
    auto lacks = [&](const peer_id& who) {
      return std::find(without.begin(), without.end(), who) != without.end();
    };
    std::erase_if(silent_, [&](const peer_id& who) { return !lacks(who); });
    auto awaited = without.size() - silent_.size();
    auto waited = now - began_;
    if (awaited == 0) {
      if (!std::exchange(complete_, true) && without.empty())
        slowest_ = slowest_.count() == 0 ? waited : (3 * slowest_ + waited) / 4;
      return 0;
    }
    auto limit = slowest_.count() == 0 ? patience_ : std::max(2 * slowest_, least_wait);
    if (waited < limit)
      return awaited;
    silent_.insert(without.begin(), without.end());
    complete_ = true;
    return 0;
  }

  static constexpr std::chrono::nanoseconds least_wait = std::chrono::milliseconds{200};

private:
  std::chrono::nanoseconds patience_;
  std::chrono::nanoseconds slowest_{0}; // from the beginning to the last member's pass, smoothed
  std::set<peer_id> silent_;
  steady_time began_;
  bool complete_ = false;
};

} // namespace waggle
