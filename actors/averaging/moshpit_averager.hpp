#pragma once

#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/averaging/averaging_step.hpp"
#include "actors/node_context.hpp"
#include "runtime/allreduce/averaging_config.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"
#include "runtime/progress/run_group.hpp"

namespace waggle {

using moshpit_averager_actor = wired_group_averager_actor::extend_with<progress_listener_actor>;

/// To itself: the step with this number has searched for a group long enough.
struct search_over {
  std::uint64_t step = 0;
};
/// To itself: the deadline of this step has passed.
struct step_expired {
  std::uint64_t step = 0;
};
/// To itself, of an extra auxiliary: look for the next group that it can reduce for.
struct look_for_groups {};

using moshpit_averager_base =
  moshpit_averager_actor::extend<caf::reacts_to<search_over>, caf::reacts_to<step_expired>,
                                 caf::reacts_to<look_for_groups>>::base;

/// Averages in many small groups, found by matchmaking, what group_averager averages in one
/// (Moshpit SGD, arXiv:2103.03239). Its caller uses the same messages: the group that it founds,
/// enters and leaves is the whole run (run_group), and a round averages with some of its members,
/// in a group of one round that its group_averager finds.
///
/// - Entering needs nobody's consent: it is answered at once, with the epoch of the run.
/// - A round is one step. find_members begins it: it is answered once a group is found, and
///   average_in_group gives the step its values. So nobody has to stop training for the search. A
///   step whose all-reduce fails tries again with another group. If that fails, too, or no group is
///   found, the epoch ends without a change: the report says failed, and the view that this peer is
///   still a member.
/// - A search ends early if the run has gone so far ahead that this peer's state would become too
///   old, or after twice the matchmaking time.
/// - The epoch after a round is the next one, or the run's: epochs may be skipped.
/// - The listener receives the view when the members or the run's epoch change.
///
/// An extra auxiliary reduces for as many groups as it can, one after another, from find_members
/// on. find_members is answered once the run has reached another epoch, with the last of these
/// rounds: its mean is about as new as the parameters of the others. A round of its own ends no
/// epoch, because it is in several of an epoch, or in none.
///
/// | state   | transitions                                                                        |
/// |---------|------------------------------------------------------------------------------------|
/// | outside | found_group, enter_group → member                                                  |
/// | member  | find_members → running; quit_group → outside                                       |
/// | running | average_in_group, then the step's report → member; quit_group → outside          |
class moshpit_averager final : public moshpit_averager_base {
public:
  /// @param tolerance how many epochs a peer may be behind the run.
  /// @param rounds used by this actor alone.
  moshpit_averager(caf::actor_config& cfg, node_context ctx, averaging_config averaging,
                   matchmaking_config members, std::uint64_t tolerance, kept_group_actor rounds);

  const char* name() const override { return "moshpit-averager"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct running {
    find_members what;
    steady_time began;
    std::optional<caf::typed_response_promise<members_found>> search; // none: it is over
    std::optional<caf::typed_response_promise<group_round>> promise;  // none: no values yet
    std::optional<round_report> over; // the step has ended before the values arrived
    std::uint64_t step = 0;           // 0: none yet, or none is needed
    average_in_group values;          // of the step, once they have arrived
    failure gave_up;                  // why we ended the search
  };
  /// Of the last step. The group_averager has a request of ours while it searches or averages.
  enum class stage : std::uint8_t { over, searching, found, averaging };

  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] milliseconds search_time() const { return 2 * members_.min_matchmaking_time; }
  [[nodiscard]] group_view view() const;
  /// Whether the last step is that of the round that was asked for last.
  [[nodiscard]] bool is_current() const { return current_ && current_->step == steps_; }

  void describe(const describe_vector& what);
  caf::result<group_view> enter(const enter_group& msg);
  void quit_from();
  void refresh();
  void on_event(const inbound_event& event);
  void notify_if_called();

  caf::result<members_found> find(const find_members& msg);
  void begin_attempts(steady_time began, milliseconds deadline);
  void begin_step();
  void search();
  void on_found();
  void end_search(failure why);
  caf::result<group_round> average(const average_in_group& msg);
  void start_round(average_in_group what);
  void on_round(round_report report);
  void end_step(round_report report);
  void end_step(failure why);
  group_round end_round(round_report report);
  void deliver(round_report report);

  // An extra auxiliary.
  void serve_run();
  void reduce_for_next_group();
  void on_reduced(round_report report);

  const node_context ctx_;
  const averaging_config config_;
  const matchmaking_config members_;
  kept_group_actor rounds_;
  group_listener_actor listener_;

  std::optional<std::uint64_t> elements_; // of the vector; none: it has not been described
  codec_plan codecs_;
  run_group run_;
  group_view told_; // what the listener knows
  std::optional<running> current_;
  std::uint64_t steps_ = 0;
  stage stage_ = stage::over;
  round_id found_;      // the round of the group that was found; zero: none yet
  find_group question_; // of the last step
  group_attempts attempts_;
  digest reduces_for_;                  // an extra auxiliary's last step: the branch
  std::optional<round_report> reduced_; // an extra auxiliary's last mean since find_members
};

} // namespace waggle
