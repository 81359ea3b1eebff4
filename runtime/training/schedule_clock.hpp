#pragma once

#include <cstdint>

#include "runtime/core/ids.hpp"

namespace waggle {

/// What an epoch of the learning rate's schedule is. `batches`: of the fastest peer. `epochs`:
/// those of a strategy with a schedule of its own (strategy_phase). `automatic`: what is usual with
/// the strategy (strategy_choice::unit).
enum class schedule_unit : std::uint8_t { automatic, rounds, batches, epochs };

/// How the epochs of the learning rate's schedule are counted. At most one of the two numbers is
/// set, and then `counts` is `rounds`.
struct schedule_clock {
  /// So many epochs lie between two rounds (hivemind's `how.epochs_per_round`). REQUIRES: the
  /// rounds are due by samples.
  std::uint64_t epochs_per_round = 1;
  /// An epoch has so many optimizer steps of all peers together (`total_steps_in_epoch` of
  /// hivemind's DecentralizedOptimizer), and may contain any number of rounds. 0: not used.
  std::uint64_t steps_in_epoch = 0;
  schedule_unit counts = schedule_unit::rounds;

  friend bool operator==(const schedule_clock&, const schedule_clock&) = default;
};

/// What a peer's schedule depends on.
struct schedule_position {
  epoch_id epoch;              // of the next round
  std::uint64_t steps = 0;     // history::steps
  std::uint64_t samples = 0;   // of all peers since the last round, as far as they are known
  std::uint64_t per_round = 1; // samples from one round to the next
};

/// The epoch of the schedule there. Peers at the same epoch of the schedule have the same learning
/// rate (INV-3). With `epochs_per_round`, the epochs after the next round are never reached before
/// it.
epoch_id schedule_epoch(const schedule_clock& clock, const schedule_position& at);

/// The epoch to go by if `last` was the one before and schedule_epoch returns `found`: a peer whose
/// samples do not count any more, or a sum of steps that turned out a little smaller, takes no
/// schedule back.
epoch_id without_going_back(const schedule_clock& clock, epoch_id last, epoch_id found);

} // namespace waggle
