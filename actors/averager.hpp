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
  codec_choice codec; // how parts travel
  /// What a vector is whose caller does not tell its tensors: one tensor of this role.
  tensor_role role = tensor_role::unspecified;
  /// Carries what a lossy codec drops of our vector in one round into the next.
  bool error_feedback = false;
  /// Reduces only: its own vector is neither sent nor changed (spec/averaging.md §1.2).
  bool auxiliary = false;
  /// Of an auxiliary that takes a group's terms as they are: longer vectors are none of its.
  std::uint64_t elements_max = plan_elements_max;
  round_config round; // its deadline is cut to what the step has left
  /// Tells matchmaking what was measured of our line (node_context::line). Off where the
  /// configuration declares a bandwidth.
  bool measures_bandwidth = true;
  /// Further attempts of one step after rounds that failed.
  std::uint32_t retries_max = 3;
  /// Unused vectors kept for the next rounds.
  std::size_t vectors_kept = 3;
  /// Threads that large parts are reduced on, apart from those that read them from the network.
  /// Worth it where there are cores to spare; with none, sums are done by the reading thread.
  std::size_t part_workers = 0;
  /// Hears of every round that this peer took part in, failed attempts included, on the averager's
  /// thread. For applications that embed the averager, and for tests.
  std::function<void(const round_report&)> observer;
};

/// Everything that makes a configuration unusable: ec::bad_config.
status check_averaging_config(const averaging_config& config);

/// To itself: forget what is too old.
struct forget_old {};
/// To itself: rounds look at the clock now.
struct check_rounds {};
/// To itself: the time of the step of this generation is up.
struct step_expired {
  std::uint64_t generation = 0;
};

struct averager_state {
  static inline const char* name = "averager";

  std::optional<averaging_step> current;
  std::uint64_t steps = 0; // generation of `current`
  persistent_group group;
  std::optional<double>
    told_bandwidth; // what matchmaking, and the group's leader, know of our line
  error_feedback feedback;
  std::vector<allreduce_part_actor> parts;
  bool ticking = false; // a check_rounds is under way to us
};

using averager_impl =
  averager_actor::extend<caf::reacts_to<round_finished>, caf::reacts_to<group_message>,
                         caf::reacts_to<forget_old>, caf::reacts_to<check_rounds>,
                         caf::reacts_to<step_expired>>;

/// Averages one vector at a time: finds a group (or keeps the last one), waits for the trigger
/// if there is one, runs an allreduce_round, tries again while there is time.
///
/// | stage             | who leaves it, and how |
/// |-------------------|----------------------------------------------------------------------|
/// | looking_for_group | group_formed → awaiting_trigger, or running; failed → finished        |
/// | awaiting_trigger  | trigger_step → running; cancel_step, the deadline → finished          |
/// | running_allreduce | round_finished → finished, or looking again                           |
/// | finished          | the next average_vector                                               |
///
/// A member of a persistent group that needs another group (somebody new is there) says so to the
/// others under the id of their last round, so that nobody waits for it in vain.
///
/// While a round runs, a member whose line turned out to carry something else tells the group's
/// leader. If another partition of the work is worth it, the leader tells all, and the next round
/// begins with it: no data waits for that, and nobody looks for a group.
averager_impl::behavior_type averager(averager_impl::stateful_pointer<averager_state> self,
                                      node_context ctx, averaging_config config,
                                      switchboard_actor switchboard, matchmaker_actor matchmaker);

} // namespace waggle

WAGGLE_LOCAL(forget_old)
WAGGLE_LOCAL(check_rounds)
WAGGLE_LOCAL(step_expired)
