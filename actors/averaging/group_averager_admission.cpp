// Which peers the group_averager admits to its group:
//
//   enter_group ─► judge_application ─► open_group::apply ─► the plan of the next round
//   a round's report ─► fault_watch ─┘ excluded: members that were silent or wrong

#include <spdlog/logger.h>

#include "actors/averaging/group_averager.hpp"
#include "actors/caf_error.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

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
  if (reply.code == ec::not_a_leader)
    reply.suggested.push_back(group_->next().members.front().peer);
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
    gone_.insert(who);
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
