#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/training/strategy.hpp"
#include "runtime/training/verdict.hpp"

namespace waggle {

/// A round of a lane that was begun and is not settled.
struct flight {
  std::uint64_t begun = 0;        // own step
  std::optional<verdict> outcome; // nothing: the round is under way; never verdict::retry
};

/// A lane as it is now: one flight per lane and part.
struct lane_state {
  std::optional<flight> under_way;
  std::optional<std::uint64_t> last_step;  // own step at which a round was last begun
  std::optional<std::uint64_t> last_epoch; // in which a round was last begun
};

/// Everything that decides what a peer does next.
struct situation {
  bool offered = false;            // a micro-step has just ended; otherwise something else happened
  std::uint64_t own_steps = 0;     // micro-steps so far, the one that is offered included
  std::uint64_t own_samples = 0;   // accumulated toward the next boundary, not in flight
  std::uint64_t swarm_samples = 0; // reported at this epoch by all peers, ours included
  bool round_called = false;       // another member has begun the round of this epoch
  bool in_group = false;           // we are in a group, which may be ourselves alone
  std::uint32_t members = 1;       // of the group, ourselves included
  bool pass_running = false;       // on the computing thread: the plan never waits for it
  std::uint64_t epochs_done = 0;
  std::uint64_t max_epochs = 0;  // 0: no end
  std::vector<lane_state> lanes; // as many as the strategy has
};

struct action {
  enum class kind : std::uint8_t {
    inner_step, // the optimizer steps with the gradient that is offered
    merge,      // the mean of `lane`
    give_up,    // the flight of `lane`, by rule `why`; after left_out, the run's state is taken
    begin,      // a round of `lane`, with what was accumulated so far, even nothing
    end_epoch,  // the samples count toward the next boundary from here on
    await,      // the round of `lane`: no other pass begins before it is over
    finish,     // all epochs are done and every flight is settled
    hold,       // go on accumulating: another pass may begin
  };
  kind what = kind::hold;
  std::size_t lane = 0;        // of inner_step, end_epoch, finish, hold: 0
  verdict why = verdict::skip; // of give_up: own_gradient, left_out or skip

  friend bool operator==(const action&, const action&) = default;
};

/// Carried out in this order. Empty: nothing to do until something happens.
using plan = std::vector<action>;

/// What to do after a micro-step or any other event. The order is fixed: settle what is ripe, begin
/// what is due, settle what blocks.
///
/// - A blocking round is over before anything else happens to the parameters.
/// - If a result that must be merged now has not arrived, nothing begins before it has; what is due
///   stays due.
/// - With fewer members than a lane's quorum, or outside of a group, nothing begins.
/// - A round of gradients begins when the swarm has its samples, or when another member has begun
///   it. A peer without samples begins one once in an epoch, and answers every call.
/// - Whatever ends an epoch adds exactly one to `epochs_done` (INV-7).
///
/// REQUIRES: as many lane states as lanes.
plan on_offer(const strategy& strategy, const situation& now);

} // namespace waggle
