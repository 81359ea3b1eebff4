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
#include "runtime/averaging/group_bandwidths.hpp"
#include "runtime/codec/error_feedback.hpp"

namespace waggle {

/// To itself: the deadline of the step of this generation has passed.
struct step_expired {
  std::uint64_t generation = 0;
};

using averager_base = averager_actor::extend<caf::reacts_to<step_expired>>::extend_with<
  round_listener_actor>::extend_with<round_owner::self_messages>::base;

/// Averages one vector at a time: finds a group (or keeps the last one), waits for the trigger if
/// one is required, runs a round, and tries again while there is time.
///
/// With a group_averager, each group that is found begins an open group, which runs the round. With
/// `reuse_group` the next step stays in it, if it has as many members as are expected. If no number
/// is expected, peers that search later are referred to the group, and enter it, as long as it has
/// places; the last member of a full group leaves it for them. A step that needs another group
/// leaves it, too; the other members go on without this peer. Without a group_averager, every step
/// finds a group, and runs its round itself.
///
/// | stage             | transitions                                                           |
/// |-------------------|-----------------------------------------------------------------------|
/// | looking_for_group | group_formed → awaiting_trigger, or running; failed → finished        |
/// | awaiting_trigger  | trigger_step → running; cancel_step, the deadline → finished          |
/// | running_allreduce | round_finished, group_round → finished, or looking again              |
/// | finished          | the next average_vector                                               |
class averager final : public averager_base {
public:
  /// @param group null: none. Used by this averager alone.
  averager(caf::actor_config& cfg, node_context ctx, averaging_config config,
           switchboard_actor switchboard, matchmaker_actor matchmaker, kept_group_actor group);

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
  void on_found(const group_formed& formed);
  void start_round();
  void on_finished(const round_finished& msg);
  void on_round_down(const caf::error& why);
  void on_report(round_report report);
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

  void on_disconnected(const peer_disconnected& msg);

  // The open group (averager_group.cpp).
  [[nodiscard]] static bool admits(const average_vector& what);
  [[nodiscard]] bool keeps_group(const average_vector& what, const codec_plan& codecs) const;
  void make_room_or_stay();
  void stay();
  void adopt();
  void enter(const peer_record& leader);
  void run_in_group();
  void on_group_round(group_round ended);
  void set_group(group_view now);
  void leave_open_group();

  const node_context ctx_;
  const averaging_config config_;
  switchboard_actor switchboard_;
  matchmaker_actor matchmaker_;

  kept_group_actor group_; // null: rounds are run here

  std::optional<averaging_step> current_;
  std::uint64_t steps_ = 0; // generation of `current_`
  group_view kept_;         // the open group
  codec_plan kept_codecs_;
  bool may_keep_ = false; // its members are those that the next step wants
  std::pair<std::optional<peer_id>, std::size_t> open_; // see set_open_group
  std::vector<peer_id> avoided_;                        // see group_round
  own_bandwidth bandwidth_;                             // as matchmaking knows it
  error_feedback feedback_;
  round_owner round_;
  fault_watch faults_;
  std::size_t company_ = 1; // participants of the last round; 1: the last search found no group
};

} // namespace waggle
