#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/training/strategy.hpp"

namespace waggle::testing {

inline strategy collaborative(std::uint64_t target_batch) {
  return find_strategy("collaborative")->make({.target_batch = target_batch});
}

/// The same, but training continues while a round runs.
inline strategy delayed_gradients(std::uint64_t target_batch) {
  return find_strategy("collaborative")
    ->make({.target_batch = target_batch, .delay_gradients = true});
}

/// Averages parameters and these statistics when `due`; `delayed`: without blocking.
inline strategy local_updates(lane_clock due, std::vector<std::string> statistics = {},
                              bool delayed = true) {
  auto made = find_strategy("local-updates")
                ->make({.delay_state = delayed, .statistics = std::move(statistics)});
  made.averages.due = due;
  return made;
}

} // namespace waggle::testing
