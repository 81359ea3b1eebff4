// What other peers send to the matchmaker: requests to join, the plan of a group that begins, the
// end of a group.

#include <spdlog/logger.h>

#include "actors/averaging/matchmaker.hpp"
#include "actors/caf_error.hpp"
#include "runtime/allreduce/round_messages.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

caf::result<outbound_answer> matchmaker::answer(const inbound_call& msg) {
  const auto* join = std::get_if<wire::join_group>(&msg.what);
  if (join == nullptr)
    return to_caf(ec::protocol_violation, "this is not for matchmaking");
  wire::join_reply reply;
  group_search::actions then;
  // A client has the same expiration, but another mode.
  bool extra = join->mode == member_mode::auxiliary && join->expiration == swarm_time::max();
  if (extra) // of no bucket
    extra_.remember(msg.from.id, join->schema, config_.prefix, join->expiration, now().steady);
  if (!current_) {
    reply.code = ec::not_looking;
    if (open_leader_ && !open_full_ && join->schema == open_schema_ && !extra)
      refer(reply);
    else if (!extra)
      seekers_.remember(msg.from.id, join->schema, join->group_key, join->expiration, now().steady);
  } else if (config_.mode == member_mode::client) {
    reply.code = ec::protocol_violation;
  } else if (avoids(msg.from.id)) {
    reply.code = ec::excluded;
  } else if (join->schema != current_->schema) {
    reply.code = ec::schema_mismatch;
  } else if (join->group_key != current_->key.text() && !extra && !config_.extra) {
    reply.code = ec::wrong_group_key;
  } else if (join->epoch != current_->what.epoch) {
    reply.code = ec::epoch_mismatch;
  } else {
    if (!extra)
      current_->add_known(msg.from.id);
    auto who = msg.from;
    if (join->mode == member_mode::client) { // it may have become one since the handshake
      who.addresses.clear();
      who.client_mode = true;
    }
    group_search::seeker asker{
      std::move(who),          join->mode == member_mode::client,      extra,
      join->bandwidth,         static_cast<std::uint32_t>(join->mode), join->gather,
      join->bandwidth_declared};
    auto decided = current_->search.on_join(asker, join->expiration, now());
    reply.code = decided.code;
    if (decided.suggested)
      reply.suggested.push_back(*decided.suggested);
    then = std::move(decided.then);
  }
  if (reply.code != ec::none) {
    ctx_.metrics->count_join_refused(reply.code);
    if (current_)
      current_->search.turned_away(msg.from.id, reply.code);
  }
  // The answer must precede a begin_group that results from it: both use the same link.
  auto promise = make_response_promise<outbound_answer>();
  promise.deliver(outbound_answer{reply, {}});
  perform(then);
  return promise;
}

/// To the leader of the open group that we are in.
void matchmaker::refer(wire::join_reply& reply) const {
  if (open_leader_ == ctx_.record.id)
    reply.suggested.push_back(ctx_.own_record());
  else if (auto leader = connected_.find(*open_leader_); leader != connected_.end())
    reply.suggested.push_back(leader->second);
}

void matchmaker::on_event(const inbound_event& msg) {
  if (const auto* begun = std::get_if<wire::begin_group>(&msg.what))
    return on_begin(msg.from, begun->plan);
  if (const auto* disbanded = std::get_if<wire::disband_group>(&msg.what)) {
    std::optional<peer_record> hint;
    if (current_ && !disbanded->suggested.empty() && !avoids(disbanded->suggested.front().id))
      hint = disbanded->suggested.front();
    if (current_ && disbanded->prefix == config_.prefix)
      perform(current_->search.on_disband(msg.from.id, hint, now()));
  } else if (const auto* left = std::get_if<wire::leave_group>(&msg.what)) {
    if (current_ && left->prefix == config_.prefix)
      current_->search.on_leave(msg.from.id);
  }
}

void matchmaker::on_begin(const peer_record& from, const round_plan& plan) {
  auto valid = validate_plan(plan);
  if (valid && !ctx_.links->may_believe(plan, from.id))
    valid =
      failure{ec::protocol_violation, "plan: it says that all members are of one user on one host"};
  if (valid && !current_)
    valid = failure{ec::not_looking, "no search is going on"};
  else if (valid)
    valid = check_group_plan(config_, current_->purpose(), ctx_.record.id, from.id, plan);
  if (!valid) {
    auto why = valid.error();
    // Our search ended while the message was on its way: not an error of the peer.
    bool late = why.code == ec::not_looking || why.code == ec::epoch_mismatch;
    log_about about{{.remote = from.id, .reason = why.code}};
    ctx_.log_caused(late ? "late plans" : "refused plans", clock().now(),
                    late ? spdlog::level::debug : spdlog::level::warn,
                    "peer " + short_name(from.id)
                      + " sent a plan that we refuse: " + to_string(why));
    ctx_.metrics->count_refused_input(why.code);
    return decline(from, plan);
  }
  if (!current_->search.on_begin(from.id))
    return decline(from, plan);
  if (auto orphans = current_->search.take_followers(); !orphans.empty())
    (*this)(group_search::disband{std::move(orphans), from});
  led_by_ = {searches_, from.id};
  (*this)(group_search::withdraw{});
  form(plan, terms_of(config_, current_->bandwidth));
}

/// Notifies the members of `plan` that we do not take part, so that the round does not wait for us.
/// Not if its sender does not lead it, or gave it the id of a round of ours: it would end that one.
void matchmaker::decline(const peer_record& from, const round_plan& plan) {
  if (plan.members.empty() || plan.members.front().peer.id != from.id
      || ctx_.rounds->takes_part_in(plan.id))
    return;
  auto message = refusal_of(plan, ctx_.record.id, ec::not_looking);
  if (!message)
    return;
  send(switchboard_, notify_peer{from, *message, {}});
  // The others only over existing links: a forged plan must not make us dial addresses in it.
  for (const auto& member : plan.members)
    if (member.peer.id != from.id && connected_.contains(member.peer.id))
      send(switchboard_, notify_peer{member.peer, *message, {}});
}

} // namespace waggle
