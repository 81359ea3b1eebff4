#include "runtime/training/boundary_estimate.hpp"

#include <algorithm>
#include <cmath>

namespace waggle {

namespace {

/// Longer is as good as unknown, and its milliseconds fit into 64 bits.
constexpr double longest = 1e9; // seconds

/// Seconds until the lane's samples or steps are complete.
std::optional<double> time_to_complete(const lane_clock& due, const boundary_progress& now) {
  auto every = static_cast<double>(due.every);
  switch (due.counts) {
    case lane_clock::unit::swarm_samples:
      if (now.samples >= every)
        return 0;
      if (!(now.samples_per_second > 0))
        return std::nullopt;
      return (every - now.samples) / now.samples_per_second;
    case lane_clock::unit::first_peer: {
      auto steps = static_cast<double>(now.steps);
      if (steps >= every)
        return 0;
      std::optional<double> own;
      if (now.seconds_per_step > 0)
        own = std::max(0.0, (every - steps) * now.seconds_per_step - now.since_step);
      auto usual = now.usual_epoch - now.since_boundary;
      if (!(now.usual_epoch > 0) || usual < 0)
        return own;
      return std::min(usual, own.value_or(usual));
    }
    case lane_clock::unit::own_steps:
      return std::nullopt;
  }
  return std::nullopt;
}

} // namespace

std::optional<milliseconds> time_to_boundary(const lane_clock& due, const boundary_progress& now) {
  auto seconds = time_to_complete(due, now);
  if (!seconds || !(*seconds < longest))
    return std::nullopt;
  milliseconds left{static_cast<std::int64_t>(std::ceil(*seconds * 1000))};
  if (due.grid == 0)
    return left;
  auto point = (now.boundary_time / due.grid + 1) * due.grid;
  auto to_grid = point > now.time ? point - now.time : 0;
  return std::max(left, milliseconds{static_cast<std::int64_t>(to_grid)});
}

milliseconds search_window(milliseconds matchmaking, double usual_epoch) {
  auto epoch =
    milliseconds{static_cast<std::int64_t>(1000 * std::clamp(usual_epoch, 0.0, longest))};
  return std::clamp(epoch - 5 * matchmaking / 2, milliseconds{0}, matchmaking);
}

} // namespace waggle
