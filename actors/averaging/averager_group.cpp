// The averager keeps its group from one round to the next, and follows its members' bandwidths.

#include "actors/averaging/averager.hpp"

namespace waggle {

/// A member that has not noticed the loss that dissolved the group here may have begun the group's
/// next round, and would wait for us: it is notified, too.
void averager::leave_persistent_group() {
  auto plan = group_.last() ? group_.last() : std::exchange(abandoned_, std::nullopt);
  group_.dissolve();
  if (plan)
    notify_members(*plan, ec::not_looking);
}

void averager::on_group_message(const group_message& msg) {
  if (const auto* report = std::get_if<wire::bandwidth_report>(&msg.what))
    on_bandwidth(msg.who, *report);
  else if (const auto* announced = std::get_if<wire::new_partition>(&msg.what))
    on_new_partition(msg.who, *announced);
  else if (const auto* left = std::get_if<wire::round_suspect>(&msg.what))
    on_departed(msg.who, left->round);
}

/// A member of our persistent group, or of the round that follows it, wants another group.
void averager::on_departed(const peer_record& who, const round_id& round) {
  if (group_.last() && group_.last()->id == round && group_.contains(who.id))
    group_.dissolve();
  auto& step = current_;
  if (!step || !step->plan || step->follows != round || !is_member(who.id, *step->plan))
    return;
  failure why{ec::not_looking, "a member looks for another group"};
  if (round_.runs()) {
    round_.cancel(why);
  } else {
    leave_group(ec::not_looking);
    attempt();
  }
}

// -- bandwidths that change ---------------------------------------------------------------------

/// The plan of the round that runs, or of the last one.
const round_plan* averager::latest_plan() const {
  if (current_ && current_->plan)
    return &*current_->plan;
  return group_.last() ? &*group_.last() : nullptr;
}

void averager::report_to_matchmaker() {
  send(matchmaker_, set_bandwidth{bandwidth_.reported()});
}

void averager::report_to_leader(const round_plan& plan) {
  const auto& leader = plan.members.front().peer;
  wire::bandwidth_report report{plan.id, bandwidth_.reported()};
  if (leader.id == ctx_.record.id)
    on_bandwidth(leader, report);
  else
    send(switchboard_, notify_peer{leader, report, {}});
}

/// If we lead the group of `report.round`: repartitions the next rounds if that pays off.
void averager::on_bandwidth(const peer_record& who, const wire::bandwidth_report& report) {
  const auto* plan = latest_plan();
  bool known = plan != nullptr
               && (plan->id == report.round || (current_ && current_->follows == report.round));
  if (!known || plan->members.front().peer.id != ctx_.record.id)
    return;
  auto better = group_.on_bandwidth(*plan, who.id, report.bandwidth);
  if (!better)
    return;
  ctx_.log->debug("rounds after {} are repartitioned", short_name(plan->id));
  for (const auto& other : plan->members)
    if (other.peer.id != ctx_.record.id)
      send(switchboard_, notify_peer{other.peer, wire::new_partition{plan->id, *better}, {}});
}

/// The leader of our group repartitions the rounds after this one.
void averager::on_new_partition(const peer_record& who, const wire::new_partition& announced) {
  auto& step = current_;
  bool late = step && step->plan && step->follows == announced.round;
  const auto* plan = late ? &*step->plan : latest_plan();
  if (plan == nullptr || (!late && plan->id != announced.round)
      || plan->members.front().peer.id != who.id)
    return;
  auto valid =
    group_.on_partition(announced.round, *plan, announced.how, position_of(ctx_.record.id, *plan));
  if (!valid) {
    ctx_.log_caused("refused partitions", clock().now(), spdlog::level::warn,
                    "peer " + short_name(who.id) + " repartitions rounds in a way that we refuse: "
                      + to_string(valid.error()));
    ctx_.metrics->count_refused_input(valid.error().code);
  }
  if (!late)
    return;
  if (round_.runs()) {
    step->replaced = true;
    round_.cancel({ec::not_looking, "the work is repartitioned"});
  } else {
    will_not_begin(step->plan->id);
    attempt();
  }
}

} // namespace waggle
