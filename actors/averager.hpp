#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/allreduce_round.hpp"
#include "actors/averaging_step.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/persistent_group.hpp"
#include "runtime/codec/codec_choice.hpp"
#include "runtime/codec/error_feedback.hpp"

namespace waggle {

struct averaging_config {
  /// The `kind` label of the rounds' metrics: gradients, params, state or vector.
  std::string kind = "vector";
  codec_choice codec; // how parts are encoded
  /// A vector without tensor descriptions is treated as one tensor of this role.
  tensor_role role = tensor_role::unspecified;
  /// Carries the rounding error of a lossy codec from one round into the next.
  bool error_feedback = false;
  /// Reduces only: its own vector is neither sent nor changed.
  bool auxiliary = false;
  /// The longest vector that an auxiliary accepts when it adopts a group's terms, in elements.
  std::uint64_t elements_max = plan_elements_max;
  round_config round; // its deadline is cut to the time that the step has left
  /// Reports our measured bandwidth (node_context::line) to matchmaking. Off if the configuration
  /// declares a bandwidth.
  bool measures_bandwidth = true;
  /// Further attempts of one step after rounds that failed.
  std::uint32_t retries_max = 3;
  /// Unused vectors kept for the next rounds.
  std::size_t vectors_kept = 3;
  /// Threads for reducing large parts, besides the thread that reads from the network. Useful with
  /// spare cores; 0: the reading thread computes all sums.
  std::size_t part_workers = 0;
  /// Called with the report of every round that this peer took part in, failed attempts included,
  /// on the averager's thread. For applications that embed the averager, and for tests.
  std::function<void(const round_report&)> observer;
};

/// Fails with ec::bad_config if the configuration cannot be used.
status check_averaging_config(const averaging_config& config);

/// To itself: forget old rounds.
struct forget_old {};
/// To itself: check round timeouts.
struct check_rounds {};
/// To itself: the deadline of the step of this generation has passed.
struct step_expired {
  std::uint64_t generation = 0;
};

struct averager_state {
  static inline const char* name = "averager";

  std::optional<averaging_step> current;
  std::uint64_t steps = 0; // generation of `current`
  persistent_group group;
  std::optional<double> told_bandwidth; // last reported to matchmaking and the leader
  error_feedback feedback;
  std::vector<allreduce_part_actor> parts;
  bool ticking = false; // a check_rounds is scheduled
};

using averager_impl =
  averager_actor::extend<caf::reacts_to<round_finished>, caf::reacts_to<group_message>,
                         caf::reacts_to<forget_old>, caf::reacts_to<check_rounds>,
                         caf::reacts_to<step_expired>>;

/// Averages one vector at a time: finds a group (or keeps the last one), waits for the trigger if
/// one is required, runs an allreduce_round, and tries again while there is time.
///
/// | stage             | transitions                                                           |
/// |-------------------|-----------------------------------------------------------------------|
/// | looking_for_group | group_formed → awaiting_trigger, or running; failed → finished        |
/// | awaiting_trigger  | trigger_step → running; cancel_step, the deadline → finished          |
/// | running_allreduce | round_finished → finished, or looking again                           |
/// | finished          | the next average_vector                                               |
///
/// A member of a persistent group that needs another group, because a new peer is waiting, notifies
/// the other members under the id of their last round, so that none of them waits for it.
///
/// While a round runs, a member whose measured bandwidth changed reports it to the group's leader.
/// If another partition would be faster, the leader sends it to all members, and the next round
/// begins with it. No data waits for that, and no search for a group is needed.
averager_impl::behavior_type averager(averager_impl::stateful_pointer<averager_state> self,
                                      node_context ctx, averaging_config config,
                                      switchboard_actor switchboard, matchmaker_actor matchmaker);

} // namespace waggle

WAGGLE_LOCAL(forget_old)
WAGGLE_LOCAL(check_rounds)
WAGGLE_LOCAL(step_expired)
