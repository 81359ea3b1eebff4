#pragma once

#include <cstdint>

#include "runtime/core/ids.hpp"

namespace waggle {

/// How the epochs of the learning rate's schedule are counted. By default one ends with each round.
/// At most one of the two is set.
struct schedule_clock {
  /// So many epochs lie between two rounds (hivemind's `average_state_every`). REQUIRES: the rounds
  /// are due by samples.
  std::uint64_t epochs_per_round = 1;
  /// An epoch has so many optimizer steps of all peers together (`total_steps_in_epoch` of
  /// hivemind's DecentralizedOptimizer), and may contain any number of rounds. 0: not used.
  std::uint64_t steps_in_epoch = 0;

  friend bool operator==(const schedule_clock&, const schedule_clock&) = default;
};

/// Where a peer is in a run, for its schedule.
struct schedule_position {
  epoch_id epoch;              // of the run: that the next round ends
  std::uint64_t steps = 0;     // history::steps
  std::uint64_t samples = 0;   // of all peers since the last round, as far as they are known
  std::uint64_t per_round = 1; // samples from one round to the next
};

/// The epoch of the schedule there. Peers at the same place have the same one, and so the same
/// learning rate (INV-3). With `epochs_per_round`, it never exceeds those that belong to the round.
epoch_id schedule_epoch(const schedule_clock& clock, const schedule_position& at);

} // namespace waggle
