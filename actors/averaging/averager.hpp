#pragma once

#include <memory>
#include <optional>
#include <string>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/averaging/averaging_step.hpp"
#include "actors/averaging/fault_watch.hpp"
#include "actors/averaging/round_owner.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/persistent_group.hpp"
#include "runtime/codec/error_feedback.hpp"

namespace waggle {

/// To itself: the deadline of the step of this generation has passed.
struct step_expired {
  std::uint64_t generation = 0;
};

using averager_base = averager_actor::extend<caf::reacts_to<step_expired>>::extend_with<
  round_listener_actor>::extend_with<round_owner::self_messages>::base;

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
/// A member whose measured bandwidth changes reports it to the group's leader while a round runs.
/// If another partition is worth it, the leader sends it to all members, and the next round begins
/// with it: no data waits for that, and no member searches for a group.
class averager final : public averager_base {
public:
  averager(caf::actor_config& cfg, node_context ctx, averaging_config config,
           switchboard_actor switchboard, matchmaker_actor matchmaker);

  const char* name() const override { return "averager"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] milliseconds time_left() const { return current_->time_left(now()); }
  [[nodiscard]] result<codec_plan> codecs_of(const average_vector& msg,
                                             std::uint64_t elements) const;

  // One step.
  caf::result<round_report> begin(average_vector& msg);
  void attempt();
  [[nodiscard]] std::optional<round_plan> persistent_plan() const;
  void keep_group(const round_plan& plan);
  void search();
  [[nodiscard]] bool is_searching(std::uint64_t generation) const {
    return current_ && steps_ == generation && !current_->plan;
  }
  /// Wraps the handler of an answer that the step needs while it searches for a group. Does nothing
  /// if the search is over when the answer arrives.
  template <class Answer, class Action>
  auto while_searching(Action action) {
    return [this, generation = steps_, action = std::move(action)](const Answer& answer) {
      if (is_searching(generation))
        action(answer);
    };
  }
  void on_search_over();
  void decline(const round_plan& plan);
  void on_group(const round_plan& plan);
  void start_round();
  void on_finished(const round_finished& msg);
  void on_round_down(const caf::error& why);
  void deliver(round_report report);
  void deliver_failure(failure why);

  // Control of the step.
  [[nodiscard]] bool is_current(std::uint64_t step) const;
  caf::result<step_stage> await(const await_group& msg);
  void trigger(const trigger_step& msg);
  void cancel(const failure& why);
  void leave_group(ec why);
  void will_not_begin(const round_id& round);
  void notify_members(const round_plan& plan, ec why);

  // The persistent group.
  void leave_persistent_group();
  void on_group_message(const group_message& msg);
  void on_departed(const peer_record& who, const round_id& round);
  void on_disconnected(const peer_disconnected& msg);

  // Bandwidths that change.
  [[nodiscard]] const round_plan* latest_plan() const;
  void report_to_matchmaker();
  void report_to_leader(const round_plan& plan);
  void on_bandwidth(const peer_record& who, const wire::bandwidth_report& report);
  void on_new_partition(const peer_record& who, const wire::new_partition& announced);

  const node_context ctx_;
  const averaging_config config_;
  switchboard_actor switchboard_;
  matchmaker_actor matchmaker_;

  std::optional<averaging_step> current_;
  std::uint64_t steps_ = 0; // generation of `current_`
  persistent_group group_;
  /// The last round of a group that was dissolved here because a member was lost, until we search
  /// for another group.
  std::optional<round_plan> abandoned_;
  own_bandwidth bandwidth_; // as matchmaking and the group's leader know it
  error_feedback feedback_;
  round_owner round_;
  fault_watch faults_;
  std::size_t company_ = 1; // participants of the last round; 1: the last search found no group
};

} // namespace waggle

WAGGLE_LOCAL(step_expired)
