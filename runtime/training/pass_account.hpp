#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/core/time.hpp"
#include "runtime/training/smooth.hpp"

namespace waggle {

/// The passes of this peer: whether one runs, and how long they take.
struct pass_account {
  bool runs = false;
  bool outdated = false;        // it reads parameters that have been replaced since it began
  bool counted = false;         // toward a boundary: its gradient may be taken already
  bool planned = false;         // a look at whether the next one may begin is scheduled
  steady_time began{};          // the one that runs
  std::function<void()> then{}; // when it ends, or is late; null: nothing
  steady_time ended{};          // the last one
  std::uint64_t samples = 0;    // of the last one
  double seconds = 0;           // of a pass, smoothed
  double rate = 0;              // samples per second, waits between passes included

  /// A pass that lasts longer than this is waited for no more: a loop may be in a debugger.
  [[nodiscard]] bool is_late(steady_time now) const {
    return runs && seconds_of(now - began) > std::max(1.0, 2 * seconds);
  }
  /// Whatever waits for its end waits no more.
  void go_on() {
    if (auto next = std::exchange(then, nullptr))
      next();
  }
  void took(double its_seconds, milliseconds least_interval) {
    smooth(seconds, its_seconds);
    auto cycle = std::max(seconds, seconds_of(least_interval));
    rate = cycle > 0 ? static_cast<double>(samples) / cycle : 0;
  }
};

} // namespace waggle
