#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/averaging/averaging_step.hpp"
#include "actors/averaging/fault_watch.hpp"
#include "actors/averaging/round_owner.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/group_lead.hpp"
#include "runtime/averaging/open_group.hpp"
#include "runtime/codec/error_feedback.hpp"
#include "runtime/codec/two_round_coding.hpp"
#include "runtime/matchmaking/group_terms.hpp"

namespace waggle {

using group_averager_base =
  wired_group_averager_actor::extend<caf::replies_to<find_group>::with<group_formed>,
                                     caf::reacts_to<cancel_search>>::
    extend_with<round_listener_actor>::extend_with<round_owner::self_messages>::base;

/// Manages this peer's membership in one open_group, which the matchmaker finds, and runs the
/// group's rounds, one at a time. Other peers ask it to be admitted; the leader sends it the plan
/// of the next round.
///
/// With a two_round_coding, an epoch of the group has two rounds; average_in_group runs both, and
/// is answered with the decoded mean, or with the failure of the round that failed.
///
/// An auxiliary needs no vector: without describe_vector it takes part in rounds without values,
/// and adopts the group's terms from the plan that admits it. It cannot found a group.
///
/// A group that matchmaking forms (find_group) has no history: see open_group::adopt. It may be for
/// one round only; the members that are lost before it begins here are reported to it.
///
/// | state     | transitions                                                                      |
/// |-----------|----------------------------------------------------------------------------------|
/// | outside   | found_group → member; find_group → searching; enter_group → entering             |
/// | searching | group_formed → member; failed, cancel_search, quit_group → outside               |
/// | entering  | the leader's plan → member; all refused, lost, deadline, quit_group → outside    |
/// | member    | average_in_group → running; quit_group → outside                                 |
/// | running   | the epoch's first of two rounds committed → running; its last one committed →    |
/// |           | member (or outside, if decided without us, or of one round); failed → outside    |
class group_averager final : public group_averager_base {
public:
  /// @param end the epoch with which the run ends; 0: not known.
  group_averager(caf::actor_config& cfg, node_context ctx, averaging_config averaging,
                 matchmaking_config members, switchboard_actor switchboard,
                 matchmaker_actor matchmaker, epoch_id end = {});

  const char* name() const override { return "group-averager"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct entry {
    caf::typed_response_promise<group_view> promise;
    digest branch; // enter_group's, and its parent
    digest parent;
  };
  struct running {
    averaging_step step; // of the current round
    caf::typed_response_promise<group_round> promise;
    digest branch; // of the round; after it, of the epoch that begins
    bool keeps_majority = true;
    bool replaced = false; // the leader has sent another plan: begin again with that one
    std::shared_ptr<const float_vector> values; // to be averaged; null for an auxiliary
    std::optional<round_report> first;          // committed: the epoch's second round is next
  };

  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] group_view view() const;
  /// This peer as a member, in the mode that it has now.
  [[nodiscard]] round_member self() const { return {ctx_.own_record(), ctx_.mode(members_.mode)}; }

  void describe(const describe_vector& what);
  [[nodiscard]] bool takes_any_group() const { return config_.auxiliary && !described_; }
  void use(open_group::terms terms);
  // -- admitting others (group_averager_entry.cpp)
  caf::result<outbound_answer> on_application(const inbound_call& call);
  [[nodiscard]] ec judge_application(const inbound_call& call, const wire::enter_group& question);
  [[nodiscard]] std::size_t group_size() const;

  void on_event(const inbound_event& event);
  void on_next_plan(const peer_record& from, const wire::next_plan& message);
  void judge_plan(const peer_record& from, const wire::next_plan& message, bool awaited);
  status enter(const peer_id& leader, const wire::next_plan& message);
  void notify_called();

  // -- finding groups, entering and leaving (group_averager_entry.cpp)
  caf::result<group_formed> find(find_group& msg);
  void on_formed(const group_formed& formed, std::uint64_t elements);
  void stop_search();
  void on_quit();

  void adopt(const group_formed& formed);
  caf::result<group_view> found(const found_group& msg);
  void train(const digest& branch, const digest& parent);
  caf::result<group_view> enter(enter_group& msg);
  void quit_from(const failure& why);

  caf::result<group_round> average(average_in_group& msg);
  void start_round(bool call);
  void on_finished(const round_finished& msg);
  void deliver(round_report report);
  void on_committed(round_report report);
  void settle_group(const round_report& report);
  void between_rounds();
  void hand_over_lead();
  void announce(const std::vector<round_member>& before, const round_id& replaced,
                const round_plan& plan);
  void report_bandwidth(const round_plan& plan);
  void yield_work();
  void expect(const round_plan& plan);
  void on_disconnected(const peer_disconnected& msg);
  // -- with a coding (group_averager_coding.cpp)
  void compute(std::uint64_t elements, std::function<void(float_vector&)> write,
               std::function<void(std::shared_ptr<const float_vector>)> then);
  void tell_coding(void (two_round_coding::*what)());
  void begin_coded(bool call);
  void begin_second_round(round_report first);
  void decode(round_report second);

  void decline(const peer_id& from, const wire::next_plan& message);
  void decline(const round_plan& plan);
  void stay_out_of(const round_plan& plan, bool dials = false);
  void tell(const peer_record& to, wire::event what);
  void tell_others(const round_plan& plan, const wire::event& what);
  void notify_listener();

  const node_context ctx_;
  const averaging_config config_;
  const matchmaking_config members_;
  switchboard_actor switchboard_;
  matchmaker_actor matchmaker_;
  group_listener_actor listener_;

  bool described_ = false;
  std::uint64_t elements_ = 0; // of the vectors together; of one that is coded, before it is
  std::shared_ptr<two_round_coding> coding_;
  compute_worker_actor coder_;
  open_group group_;
  // Whoever waits for an answer keeps the pointer: it is of use only while it is this one.
  std::shared_ptr<entry> entry_;
  std::shared_ptr<caf::typed_response_promise<group_formed>> search_;
  std::shared_ptr<running> current_;
  bool one_round_ = false;  // the group that was searched for last is for one round
  std::size_t company_ = 1; // participants of the last such round; 1: the last search found none
  std::vector<peer_disconnected> lost_; // members of such a group, before its round
  error_feedback feedback_;
  digest history_; // to which the residuals of feedback_ and coding_ belong
  random_source random_;
  group_lead lead_;
  round_owner round_;
  fault_watch faults_;
};

} // namespace waggle
