// The group_averager enters a group that the matchmaker finds, leaves it, and admits other peers:
//
//   find_group ─► matchmaker ─► group_formed ─► open_group::adopt ─► the answer
//   enter_group ─► find_place ─► a leader's plan ─► on_next_plan ─► the answer
//   wire::enter_group ─► judge_application ─► open_group::apply ─► the plan of the next round
//   a round's report ─► fault_watch ─┘ excluded: members that were silent or wrong

#include "actors/averaging/group_averager.hpp"
#include "actors/caf_error.hpp"
#include "actors/new_name.hpp"
#include "runtime/averaging/entry_search.hpp"

namespace waggle {

caf::result<group_formed> group_averager::find(find_group& msg) {
  on_quit();
  if (current_)
    return to_caf(ec::overloaded, "one round at a time");
  one_round_ = msg.one_round;
  lost_.clear();
  msg.bandwidth = lead_.announce(now());
  if (one_round_)
    msg.avoided = faults_.excluded(company_, now());
  auto promise = make_response_promise<group_formed>();
  search_ = std::make_shared<caf::typed_response_promise<group_formed>>(promise);
  auto elements = elements_of(msg.codecs);
  auto patience = msg.deadline + 2s;
  request(matchmaker_, patience, std::move(msg))
    .then(
      [this, asked = search_, elements](const group_formed& formed) {
        if (search_ == asked)
          on_formed(formed, elements);
        else if (!formed.open_group) // found just after the search was given up
          decline(formed.plan);
      },
      [this, asked = search_](const caf::error& why) {
        if (search_ != asked)
          return;
        company_ = 1; // fewer are excluded in the next search
        std::exchange(search_, nullptr)->deliver(why);
      });
  return promise;
}

void group_averager::on_formed(const group_formed& formed, std::uint64_t elements) {
  auto promise = *std::exchange(search_, nullptr);
  bool fits = is_member(ctx_.record.id, formed.plan) && formed.plan.elements == elements;
  if (fits)
    adopt(formed);
  if (fits || formed.open_group)
    promise.deliver(formed);
  else
    promise.deliver(to_caf(ec::internal, "matchmaking made a plan that does not fit"));
  if (fits) // its leader's call may have been faster
    notify_called();
}

void group_averager::stop_search() {
  if (!search_)
    return;
  send(matchmaker_, cancel_search{});
  std::exchange(search_, nullptr)->deliver(to_caf(ec::cancelled));
}

/// A round that is the group's only one ends with its report, as without this.
void group_averager::on_quit() {
  stop_search();
  if (!one_round_ || !group_.is_member())
    return quit_from({ec::cancelled, {}});
  if (current_)
    return round_.cancel({ec::cancelled, {}});
  decline(group_.next());
  group_.leave();
}

/// Of a group that matchmaking formed: its members would wait for us. Messages of its round are
/// answered from now on, not kept.
void group_averager::decline(const round_plan& plan) {
  ctx_.rounds->finish(plan.id, {{}, plan.id, {}}, now());
  stay_out_of(plan, true);
}

void group_averager::adopt(const group_formed& formed) {
  quit_from({ec::cancelled, {}});
  const auto& known = group_.shared().vectors;
  if (known.empty() || known.front() != formed.plan.codecs) {
    described_ = !config_.auxiliary;
    feedback_.forget();
  }
  use(terms_of(members_, {formed.plan.codecs}));
  group_.adopt(formed.plan, formed.terms);
  lead_.entered(formed.plan.members.front().peer.id);
  expect(formed.plan);
}

caf::result<group_view> group_averager::found(const found_group& msg) {
  if (!described_)
    return to_caf(ec::not_ready, "the vector has not been described yet");
  quit_from({ec::cancelled, {}});
  group_.become(self());
  group_.found(msg.epoch, msg.branch, new_name<round_id>(ctx_, random_));
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
  entry_ = std::make_shared<entry>(entry{promise, msg.branch, msg.parent});
  find_place question{std::move(msg.through), msg.branch,
                      described_ ? group_.shared().schema : digest{}, lead_.bandwidth(),
                      msg.deadline};
  request(matchmaker_, msg.deadline + 2s, std::move(question))
    .then([](const place_found&) { /* what we said of the plan */ },
          [this, asked = entry_](const caf::error& why) {
            if (entry_ != asked)
              return;
            send(matchmaker_, cancel_search{}); // it may not have answered
            std::exchange(entry_, nullptr)->promise.deliver(why);
          });
  return promise;
}

void group_averager::quit_from(const failure& why) {
  if (entry_) {
    send(matchmaker_, cancel_search{});
    std::exchange(entry_, nullptr)->promise.deliver(to_caf(why));
  }
  if (!group_.is_member())
    return;
  if (current_ && current_->step.plan && ctx_.rounds->was_prepared(current_->step.plan->id))
    current_->step.held = current_->step.plan;
  ctx_.rounds->finish(group_.next().id, {{}, group_.next().id, {}}, now());
  stay_out_of(group_.next());
  group_.leave();
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
  // Only the leader admits. Other members refer to it, whatever they remember themselves.
  if (group_.leads())
    if (auto why = faults_.refuses(call.from.id, call.host, group_size(), now()); why != ec::none)
      return why;
  group_.become(self());
  member_bandwidth bandwidth{question.bandwidth, question.bandwidth_declared};
  auto who = call.from;
  if (question.mode == member_mode::client) { // it may have become one since the handshake
    who.addresses.clear();
    who.client_mode = true;
  }
  auto judged = group_.apply(
    {{std::move(who), question.mode}, question.schema, question.branch, bandwidth, call.host});
  if (judged == ec::none)
    faults_.accepted(call.from.id, call.host);
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
    const auto& leader = group_.next().members.front().peer;
    reply.suggested.push_back(leader);
    if (question->unreached == leader.id && lead_.asks_in(group_.next().id))
      tell(leader, wire::bandwidth_report{group_.next().id, {}, true});
  }
  if (reply.code != ec::none)
    ctx_.metrics->count_join_refused(reply.code);
  auto promise = make_response_promise<outbound_answer>();
  promise.deliver(outbound_answer{reply, {}});
  if (reply.code != ec::none && !is_exclusion(reply.code))
    return promise;
  if (!current_ && reply.code == ec::none) {
    between_rounds();
  } else if (group_.contains(who)) {
    // A member that applies again has lost its membership, so it will not finish this round, nor
    // the second one of the epoch.
    group_.lost(who);
    round_.report_lost({who, {ec::peer_lost, "it has entered the group again"}});
  }
  return promise;
}

std::size_t group_averager::group_size() const {
  return group_.is_member() ? group_.next().members.size() : 1;
}

} // namespace waggle
