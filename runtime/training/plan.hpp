#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/training/strategy.hpp"
#include "runtime/training/verdict.hpp"

namespace waggle {

/// A round that was begun and is not settled yet.
struct flying_round {
  std::uint64_t begun = 0;        // own step
  std::optional<verdict> outcome; // nothing: the round is under way; never verdict::retry
};

/// The inputs of the decision what a peer does next.
struct situation {
  bool offered = false;             // a micro-step has just ended; otherwise this is another event
  std::uint64_t own_steps = 0;      // micro-steps so far, including the one that is offered
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
  bool gradient_in_use = false;     // the pass uses what a round would take
  std::uint64_t epochs_done = 0;    // boundaries passed, also if the round of the last is under way
  std::uint64_t max_epochs = 0;     // 0: no end
  std::optional<flying_round> round;
  std::optional<std::uint64_t> last_epoch; // in which a round was last begun
};

struct action {
  enum class kind : std::uint8_t {
    inner_step, // the optimizer steps with the gradient that is offered
    merge,      // the mean
    give_up,    // the flight, by rule `why`; after left_out, the run's state is downloaded
    begin,      // a round, with the gradient accumulated so far, even none
    end_epoch,  // from here on, samples count toward the next boundary
    await,      // the round: no pass begins before it is over
    finish,     // all epochs are done and no flight is left
    hold,       // keep accumulating: another pass may begin
  };
  kind what = kind::hold;
  verdict why = verdict::skip; // of give_up: own_gradient, left_out or skip

  friend bool operator==(const action&, const action&) = default;
};

/// Actions to carry out in this order. Empty: nothing to do until the next event.
using plan = std::vector<action>;

/// What to do after a micro-step or any other event. The order is fixed: settle what is ripe (must
/// be merged or given up now), begin what is due, settle what blocks.
///
/// - While a blocking round runs, no pass begins. It runs from the moment at which its members have
///   been found; the pass that runs then still ends.
/// - If a result must be merged now and has not arrived, no round begins before it has; rounds that
///   are due stay due.
/// - Outside of a group, no round begins.
/// - A round of gradients begins when the swarm has enough samples, or when another member has
///   begun it, and not in the middle of a pass that adds to the only copy of the gradient. A peer
///   without samples begins at most one per epoch, and joins every round that another member
///   begins.
/// - The end of an epoch adds exactly one to `epochs_done` (INV-7).
plan on_offer(const strategy& strategy, const situation& now);

} // namespace waggle
