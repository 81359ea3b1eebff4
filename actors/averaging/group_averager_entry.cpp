// The group_averager enters a group that the matchmaker finds, leaves it, and admits other peers:
//
//   enter_group ─► find_place ─► a leader's plan ─► on_next_plan ─► the answer
//   wire::enter_group ─► judge_application ─► open_group::apply ─► the plan of the next round
//   a round's report ─► fault_watch ─┘ excluded: members that were silent or wrong

#include <spdlog/logger.h>

#include "actors/averaging/group_averager.hpp"
#include "actors/caf_error.hpp"
#include "actors/new_name.hpp"
#include "runtime/averaging/entry_search.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

void group_averager::adopt(const adopt_group& msg) {
  quit_from({ec::cancelled, {}});
  if (!group_ || group_->shared().vectors.front() != msg.plan.codecs) {
    described_ = !config_.auxiliary;
    feedback_.forget();
  }
  use(terms_of(members_, {msg.plan.codecs}));
  group_->adopt(msg.plan, msg.terms);
  lead_.entered(msg.plan.members.front().peer.id);
  expect(msg.plan);
}

caf::result<group_view> group_averager::found(const found_group& msg) {
  if (!described_)
    return to_caf(ec::not_ready, "the vector has not been described yet");
  quit_from({ec::cancelled, {}});
  group_->become(self());
  group_->found(msg.epoch, msg.branch, new_name<round_id>(ctx_, random_));
  lead_.entered(ctx_.record.id);
  train(msg.branch, msg.parent);
  return view();
}

/// Residuals are of use to one history, and to what was forked from it.
void group_averager::train(const digest& branch, const digest& parent) {
  auto before = std::exchange(history_, branch);
  if (before == branch || before == parent)
    return;
  feedback_.forget();
  tell_coding(&two_round_coding::forget);
}

caf::result<group_view> group_averager::enter(enter_group& msg) {
  if (!described_ && !takes_any_group())
    return to_caf(ec::not_ready, "the vector has not been described yet");
  quit_from({ec::cancelled, {}});
  auto promise = make_response_promise<group_view>();
  entry_ = entry{promise, msg.branch, msg.parent};
  find_place question{std::move(msg.through), msg.branch,
                      described_ ? group_->shared().schema : digest{}, lead_.bandwidth(),
                      msg.deadline};
  request(matchmaker_, msg.deadline + 2s, std::move(question))
    .then([](const place_found&) { /* what we said of the plan */ },
          [this, number = ++entries_](const caf::error& why) {
            if (!entry_ || number != entries_)
              return;
            send(matchmaker_, cancel_search{}); // it may not have answered
            std::exchange(entry_, std::nullopt)->promise.deliver(why);
          });
  return promise;
}

void group_averager::quit_from(const failure& why) {
  if (entry_) {
    send(matchmaker_, cancel_search{});
    std::exchange(entry_, std::nullopt)->promise.deliver(to_caf(why));
  }
  if (!group_ || !group_->is_member())
    return;
  if (current_ && current_->step.plan && ctx_.rounds->was_prepared(current_->step.plan->id))
    current_->step.held = current_->step.plan;
  ctx_.rounds->finish(group_->next().id, {{}, group_->next().id, {}}, now());
  stay_out_of(group_->next());
  group_->leave();
  if (!current_)
    return;
  round_.cancel(why);
  round_.forget();
  group_round ended;
  if (current_->step.plan)
    ended.report.round = current_->step.plan->id;
  ended.report.why = why;
  current_->step.settle(feedback_, ended.report, ctx_.record.id);
  auto promise = std::move(current_->promise);
  current_.reset();
  promise.deliver(std::move(ended));
}

// -- admitting others -----------------------------------------------------------------------------

ec group_averager::judge_application(const inbound_call& call, const wire::enter_group& question) {
  if (!group_)
    return ec::not_ready;
  // Only the leader admits. Other members refer to it, whatever they remember themselves.
  auto fault =
    group_->leads() ? faults_.excluded_for(call.from.id, group_size(), now()) : fault_kind::none;
  if (fault != fault_kind::none)
    return fault == fault_kind::slow ? ec::stalled : ec::excluded;
  bool known = ctx_.rounds->has_averaged_with(call.from.id);
  if (group_->leads() && !known && !hosts_.admits(call.host, now()))
    return ec::excluded;
  group_->become(self());
  member_bandwidth bandwidth{question.bandwidth, question.bandwidth_declared};
  auto who = call.from;
  if (question.mode == member_mode::client) { // it may have become one since the handshake
    who.addresses.clear();
    who.client_mode = true;
  }
  auto judged = group_->apply(
    {{std::move(who), question.mode}, question.schema, question.branch, bandwidth, call.host});
  if (judged == ec::none && !known)
    hosts_.accepted(call.from.id, call.host);
  return judged;
}

caf::result<outbound_answer> group_averager::on_application(const inbound_call& call) {
  const auto* question = std::get_if<wire::enter_group>(&call.what);
  if (question == nullptr || question->prefix != members_.prefix)
    return to_caf(ec::protocol_violation, "this is not for averaging");
  wire::join_reply reply;
  auto who = call.from.id;
  reply.code = judge_application(call, *question);
  if (reply.code == ec::not_a_leader) {
    const auto& leader = group_->next().members.front().peer;
    reply.suggested.push_back(leader);
    if (question->unreached == leader.id && lead_.asks_in(group_->next().id))
      tell(leader, wire::bandwidth_report{group_->next().id, {}, true});
  }
  if (reply.code != ec::none)
    ctx_.metrics->count_join_refused(reply.code);
  auto promise = make_response_promise<outbound_answer>();
  promise.deliver(outbound_answer{reply, {}});
  if (reply.code != ec::none && !is_exclusion(reply.code))
    return promise;
  if (!round_runs() && reply.code == ec::none) {
    between_rounds();
  } else if (group_->contains(who)) {
    // A member that applies again has lost its membership, so it will not finish this round, nor
    // the second one of the epoch.
    group_->lost(who);
    round_.report_lost({who, {ec::peer_lost, "it has entered the group again"}});
  }
  return promise;
}

/// What the round says of newcomers: whoever contributed is none any more, whoever was silent may
/// have other names.
void group_averager::judge_newcomers(const round_report& report) {
  for (const auto& fault : report.faults)
    if (fault.seen && kind_of(fault.reason) == fault_kind::silent)
      if (auto paused = hosts_.silent(fault.peer, now())) {
        log_about about{{.round = report.round, .remote = fault.peer, .reason = fault.reason}};
        ctx_.log_caused("silent newcomers", now(), spdlog::level::warn,
                        fmt::format("newcomer {} was silent in its first round: no peers that we "
                                    "do not know are admitted from {} for {:.0f} s",
                                    short_name(fault.peer), paused->host,
                                    seconds_of(paused->lasts)));
      }
  for (const auto& peer : report.contributors)
    hosts_.forget(peer);
}

std::size_t group_averager::group_size() const {
  return group_ && group_->is_member() ? group_->next().members.size() : 1;
}

} // namespace waggle
