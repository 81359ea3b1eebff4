#pragma once

#include <cstdint>
#include <optional>

#include "runtime/core/time.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// How far a peer and its group are on the way to the next boundary.
struct boundary_progress {
  double samples = 0;              // of all peers, since the last boundary
  double samples_per_second = 0;   // of all peers; 0: not known
  std::uint64_t steps = 0;         // of this peer, since the last boundary
  double since_step = 0;           // seconds since the last of them ended
  double seconds_per_step = 0;     // of this peer, with the waits between steps; 0: not known
  double usual_epoch = 0;          // seconds from one boundary to the next; 0: not known
  double since_boundary = 0;       // seconds since the last boundary
  std::uint64_t time = 0;          // milliseconds of the swarm's clock
  std::uint64_t boundary_time = 0; // the same, of the last boundary
};

/// The time until this lane is at its next boundary, at the current pace; not negative. Nothing:
/// the pace is not known, or the lane makes no boundaries.
///
/// - Samples: what is missing, at the speed of all peers.
/// - Steps of the first peer that makes so many: this peer's own, or the usual end of an epoch if
///   that is earlier and not over yet. Another peer that is faster usually ends it.
/// - With a grid: the next point of the grid, or the time above if that is later.
std::optional<milliseconds> time_to_boundary(const lane_clock& due, const boundary_progress& now);

/// How long before a boundary a search for its group may begin: the matchmaking time, if epochs are
/// long enough. A peer that found no group at a boundary searches on for up to twice the
/// matchmaking time. If the others searched for their next group meanwhile, it would complete one,
/// and begin their round a whole search too early. So nobody searches ahead in the 2.5 times the
/// matchmaking time after a boundary: boundaries of peers are not at quite the same time.
/// @param usual_epoch seconds; 0: not known.
milliseconds search_window(milliseconds matchmaking, double usual_epoch);

} // namespace waggle
