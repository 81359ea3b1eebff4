#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/training/strategy.hpp"

namespace waggle {

/// A round that was begun and is not settled yet.
struct flying_round {
  std::uint64_t begun = 0; // own step
  bool over = false;       // its mean, if it has one, can be merged
};

/// The inputs of the decision what a peer does next.
struct situation {
  std::uint64_t own_steps = 0;      // micro-steps so far
  std::uint64_t own_samples = 0;    // accumulated toward the next boundary, not in flight
  std::uint64_t swarm_samples = 0;  // reported at this epoch by all peers, including ours
  std::uint64_t boundary_steps = 0; // micro-steps since the last boundary
  std::size_t members_missing = 0;  // with lane_clock::unit::each_member: whose steps are awaited
  std::uint64_t boundary_time = 0;  // of the last boundary, or of the entry into the group
  std::uint64_t time = 0;           // milliseconds of the swarm's clock, as boundary_time
  bool round_called = false;        // another member has begun the round of this epoch
  bool exhausted = false;           // no member can add a sample: the round is due
  bool in_group = false;            // we are in a group, which may have no other member
  std::uint32_t members = 1;        // of the group, including ourselves
  bool pass_running = false;        // on the computing thread: the plan does not wait for it
  bool searching = false;           // for the members of the round that is under way
  bool leaving = false;             // on a notice: no pass begins
  bool idle = false;                // no samples are left to it before the next round
  bool hurried = false;             // it leaves before the next round: that is due now
  bool gradient_in_use = false;     // the pass uses what a round would take
  std::uint64_t epochs_done = 0;    // boundaries passed, also if the round of the last is under way
  std::uint64_t max_epochs = 0;     // 0: no end
  std::optional<flying_round> round{};
  std::optional<std::uint64_t> last_epoch{}; // in which a round was last begun
};

/// What to do now, in this order.
struct next_actions {
  bool merge = false; // the mean of the round that is over, or nothing if it has none
  bool begin = false; // a round, with what is accumulated so far, even nothing
  bool pass = false;  // another pass may begin

  friend bool operator==(const next_actions&, const next_actions&) = default;
};

/// What to do after a pass or any other event.
///
/// - While a blocking round runs, no pass begins. It runs from the moment at which its members have
///   been found; the pass that runs then still ends. Its mean is merged when it arrives, without a
///   plan.
/// - If a result must be merged now and has not arrived, no round begins before it has; rounds that
///   are due stay due.
/// - Outside of a group, no round begins.
/// - A peer that leaves begins no pass. It, and one without samples, merges each mean as soon as it
///   arrives.
/// - A round of gradients begins when the swarm has enough samples, or when another member has
///   begun it, and not in the middle of a pass that adds to the only copy of the gradient. A peer
///   without samples begins at most one per epoch, and joins every round that another member
///   begins.
next_actions plan_next(const lane& averages, const situation& now);

} // namespace waggle
