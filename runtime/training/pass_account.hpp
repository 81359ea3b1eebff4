#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"
#include "runtime/training/smooth.hpp"

namespace waggle {

/// The passes of this peer: whether one runs, and how long they take.
struct pass_account {
  bool runs = false;
  bool outdated = false;      // it reads parameters that have been replaced since it began
  bool offered = false;       // its gradient may be taken already, and it is counted
  bool planned = false;       // a look at whether the next one may begin is scheduled
  steady_time began;          // the one that runs
  std::function<void()> then; // when it ends, or is late; null: nothing
  steady_time ended;          // the last one
  std::uint64_t samples = 0;  // of the last one
  double seconds = 0;         // of a pass, smoothed
  double rate = 0;            // samples per second, waits between passes included

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

/// The epochs of this peer's group, as they pass here.
struct epoch_times {
  steady_time began;
  double seconds = 0;              // of an epoch, smoothed
  steady_time boundary;            // since when samples and passes count toward the next one
  std::uint64_t boundary_time = 0; // the same by the swarm's clock, on the grid of the rounds
  epoch_id of_schedule;            // of the last local step
  std::uint64_t samples = 0;       // of all peers, and since when there are not more
  steady_time grew;

  void end(steady_time now) {
    smooth(seconds, seconds_of(now - began));
    began = now;
  }
  /// How many seconds ago this number of samples was another one.
  double without_more(std::uint64_t of_all, steady_time now) {
    if (of_all != samples || grew < began) {
      samples = of_all;
      grew = now;
    }
    return seconds_of(now - grew);
  }
};

} // namespace waggle
