// A step that has its group and waits for its trigger: what the other members do meanwhile.
//
//   round_* of a member ─► round_registry ─► group_message ─┬ it has begun ─► step_called ─► caller
//   a member's link is lost ────────────────────────────────┴ it has gone ─► left out, or search again

#include "actors/averager.hpp"
#include "actors/guard.hpp"
#include "runtime/averaging/round_decision.hpp"

namespace waggle {

void averager::await_trigger() {
  auto self = caf::actor_cast<caf::weak_actor_ptr>(this);
  ctx_.rounds->await(*current_->plan, [self](const peer_record& who, const wire::event& message) {
    if (auto target = caf::actor_cast<caf::strong_actor_ptr>(self))
      caf::anon_send(caf::actor_cast<round_listener_actor>(target), group_message{who, message});
  });
}

caf::result<step_called> averager::await_call_of(std::uint64_t step) {
  if (!is_current(step))
    return to_caf(ec::cancelled);
  if (current_->called)
    return step_called{};
  current_->call = make_response_promise<step_called>();
  return *current_->call;
}

/// Whether our step waits for its trigger with the group of this round.
bool averager::awaits(const round_id& round) const {
  return current_ && current_->stage == step_stage::awaiting_trigger && current_->plan
         && current_->plan->id == round;
}

void averager::on_message_while_waiting(const group_message& msg) {
  auto& step = *current_;
  if (const auto* loss = std::get_if<wire::round_suspect>(&msg.what))
    if (loss->member == position_of(msg.who.id, *step.plan))
      return on_gone(msg.who.id, loss->reason);
  step.called = true;
  if (auto caller = std::exchange(step.call, std::nullopt))
    caller->deliver(step_called{});
}

/// A member will not take part. The round goes on without it if enough are left; a member that
/// looks for another group (ec::not_looking) ends it for all, as it ends a round that has begun.
void averager::on_gone(const peer_id& member, ec why) {
  auto& step = *current_;
  step.gone.insert(member);
  if (why != ec::not_looking && is_worth_beginning(*step.plan, step.gone))
    return;
  ctx_.log->debug("the group of round {} falls apart: {}", short_name(step.plan->id),
                  to_string(why));
  leave_group(why == ec::not_looking ? why : ec::lost_quorum);
  step.plan.reset(); // no round was begun
  if (++step.fallen_apart > config_.retries_max || time_left() == 0ms)
    return deliver_failure({ec::lost_quorum, "the group fell apart before its round began"});
  attempt();
}

/// Members that wait for their trigger begin now. Before our parts, which may take long to arrive.
void averager::call_members(const round_plan& plan) {
  for (const auto& member : plan.members)
    if (member.peer.id != ctx_.record.id
        && !ctx_.links->tell(member.peer.id, wire::round_begun{plan.id}, {}))
      send(switchboard_, notify_peer{member.peer, wire::round_begun{plan.id}, {}});
}

/// A group was found that we do not want any more. Its members would wait for us.
void averager::decline(const round_plan& plan) {
  will_not_begin(plan.id);
  notify_members(plan, ec::cancelled);
}

} // namespace waggle
