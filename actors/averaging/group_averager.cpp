// enter_group ─► matchmaker: find_place ─► next_plan ─► awaited ─► member
// average_in_group ─► the round of open_group::next() ─► committed ─► open_group::advance ─► report
//                     (with a coding two rounds: see group_averager_coding.cpp)
//                        └ with `call`: call_round to the others ─► round_called to their listeners
// as the leader, between rounds: applicants, new bandwidths ─► next_plan to all members

// This file is long: it is one actor's messages about one group and its round, which change each
// other's state; entering and admitting, and coding have files of their own.

#include "actors/averaging/group_averager.hpp"

#include <algorithm>

#include "actors/averaging/allreduce_round.hpp"
#include "actors/averaging/compute_worker.hpp"
#include "actors/guard.hpp"
#include "runtime/allreduce/round_messages.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

group_averager::group_averager(caf::actor_config& cfg, node_context ctx, averaging_config averaging,
                               matchmaking_config members, switchboard_actor switchboard,
                               matchmaker_actor matchmaker, epoch_id end)
  : group_averager_base(cfg), ctx_(std::move(ctx)), config_(std::move(averaging)),
    members_(std::move(members)), switchboard_(std::move(switchboard)),
    matchmaker_(std::move(matchmaker)),
    group_(self(), {.end = end}, {members_.bandwidth, members_.bandwidth.has_value()}),
    feedback_(config_.error_feedback),
    random_(ctx_.randomness("group-averager " + members_.prefix)),
    lead_(members_.bandwidth, {ctx_.bandwidth, config_.measures_bandwidth}), round_(ctx_, config_),
    faults_(ctx_, config_.kind) {
  end_on_exception(this, ctx_);
}

void group_averager::on_exit() {
  entry_.reset();
  search_.reset();
  current_.reset();
  switchboard_ = nullptr;
  matchmaker_ = nullptr;
  listener_ = nullptr;
  coder_ = nullptr;
  round_.end();
}

group_averager::behavior_type group_averager::make_behavior() {
  round_.begin(*this);
  set_exit_handler([this](const caf::exit_msg& msg) {
    round_.exit(*this, msg.reason);
    quit(msg.reason);
  });
  set_down_handler([this](const caf::down_msg& down) {
    if (!round_.is_round(down.source))
      return;
    current_->replaced = false; // the round's actor died without a report
    on_finished({{.why = from_caf(down.reason), .round = current_->step.plan->id}, {}});
  });
  return {
    [this](const inbound_call& msg) { return on_application(msg); },
    [this](const inbound_event& msg) { on_event(msg); },
    [this](const describe_vector& msg) { describe(msg); },
    [this](find_group& msg) { return find(msg); },
    [this](cancel_search) { stop_search(); },
    [this](const found_group& msg) { return found(msg); },
    [this](enter_group& msg) { return enter(msg); },
    [this](quit_group) { on_quit(); },
    [this](get_residual) -> group_residual {
      auto kept = feedback_.residual();
      if (kept.empty())
        return {};
      return {std::make_shared<float_vector>(kept.begin(), kept.end()), history_};
    },
    [](const find_members&) { return members_found{}; },
    [this](average_in_group& msg) { return average(msg); },
    // A lost member stays lost in the group: it has missed messages, and must enter again.
    [this](const peer_connected& msg) {
      std::erase_if(lost_, [&](const auto& one) { return one.peer == msg.peer.id; });
    },
    [this](const peer_disconnected& msg) { on_disconnected(msg); },
    [this](const listen_group& msg) { listener_ = msg.listener; },
    [this](const round_finished& msg) { on_finished(msg); },
    [this](const group_message& msg) {
      if (const auto* report = std::get_if<wire::bandwidth_report>(&msg.what))
        if (group_.contains(msg.who.id)) {
          if (report->wants_lead) // says nothing of its bandwidth
            lead_.ask(msg.who.id);
          else
            lead_.report(msg.who.id, report->bandwidth);
          if (report->bandwidth == 0.0 && !current_ && !one_round_) // it leaves soon
            between_rounds();
        }
    },
    [this](forget_old) {
      round_.on_forget_old(*this);
      faults_.show(one_round_ ? company_ : group_size(), now());
      yield_work();
    },
    [this](check_rounds) { round_.on_check(*this); },
  };
}

void group_averager::describe(const describe_vector& what) {
  auto vectors =
    vectors_of(config_.codec, config_.role, what.elements, what.tensors, what.coding.get());
  if (!vectors) {
    ctx_.log->error("averaging cannot begin: {}", to_string(vectors.error()));
    return quit(to_caf(ec::bad_config));
  }
  if (group_.shared().vectors != *vectors)
    feedback_.forget();
  if (what.residual && config_.error_feedback > 0) {
    feedback_.restore(*what.residual);
    history_ = what.history;
  }
  described_ = true;
  elements_ = what.elements;
  coding_ = what.coding;
  if (coding_ && !coder_)
    coder_ = spawn_apart<compute_worker, caf::linked>(*this, config_.detach_workers, ctx_);
  use(terms_of(members_, *std::move(vectors), what.coding != nullptr));
  std::uint64_t sent = 0;
  for (const auto& codecs : group_.shared().vectors)
    sent += elements_of(codecs);
  ctx_.metrics->set_sent_values_ratio(static_cast<double>(sent)
                                      / static_cast<double>(std::max<std::uint64_t>(elements_, 1)));
}

void group_averager::use(open_group::terms terms) {
  group_.use(self(), std::move(terms), {members_.bandwidth, members_.bandwidth.has_value()});
}

group_view group_averager::view() const {
  group_view out;
  if (!group_.is_member())
    return out;
  out.member = true;
  out.epoch = group_.next().epoch;
  out.branch = group_.branch();
  for (const auto& m : group_.next().members) {
    out.members.push_back(m.peer.id);
    out.clients += m.mode == member_mode::client ? 1 : 0;
  }
  if (!group_.shared().all_each_epoch)
    out.elements = group_.residual().of;
  return out;
}

// -- between rounds -------------------------------------------------------------------------------

/// As the leader, before the next round begins: admits applicants and repartitions the work.
void group_averager::between_rounds() {
  if (!group_.is_member())
    return;
  auto before = group_.next().members;
  auto replaced = group_.next().id;
  for (const auto& [who, bandwidth] : lead_.take_reports())
    (void)group_.on_bandwidth(who, bandwidth); // the result shows in next()
  // Who was silent or wrong in the round that has just ended may have applied during it.
  for (const auto& peer : faults_.excluded(group_size(), now()))
    group_.withdraw(peer);
  if (!group_.admit())
    hand_over_lead();
  (void)group_.on_one_host(ctx_.links->are_neighbours(group_.next(), ctx_.record.id));
  const auto& plan = group_.next();
  if (plan.id == replaced)
    return;
  group_.seal(replaced);
  announce(before, replaced, plan);
  notify_listener();
}

/// To a member that reaches a peer which we do not: anybody can say so of itself, so this is rare.
/// Or because we leave soon.
void group_averager::hand_over_lead() {
  bool leaves = ctx_.bandwidth && ctx_.bandwidth->is_withdrawn();
  auto heir = leaves ? successor_in(group_.next()) : lead_.heir(now());
  if (!heir || !group_.hand_lead_to(*heir))
    return;
  lead_.given(now());
  ctx_.log->info("peer {} leads the group from now on: {}", short_name(*heir),
                 leaves ? "this one leaves soon"
                        : "it reaches a peer that wants to enter and does not reach this one");
}

/// Before this peer leaves: others reduce and lead in its place, with the next plan.
void group_averager::yield_work() {
  bool leaves = ctx_.bandwidth && ctx_.bandwidth->is_withdrawn();
  if (!leaves || one_round_ || !group_.is_member() || group_.next().members.size() < 2)
    return;
  bool reduces = group_.next().shares[group_.position()] > 0;
  if (reduces)
    report_bandwidth(group_.next());
  if (group_.leads() && !current_ && (!reduces || successor_in(group_.next())))
    between_rounds();
}

void group_averager::expect(const round_plan& plan) {
  ctx_.rounds->expect(plan, group_listener_to(caf::actor_cast<round_listener_actor>(this)));
}

void group_averager::announce(const std::vector<round_member>& before, const round_id& replaced,
                              const round_plan& plan) {
  log_about about{{.epoch = plan.epoch, .round = plan.id}};
  ctx_.log->debug("the next round, of epoch {}, has {} members (before: {})", plan.epoch.value(),
                  plan.members.size(), before.size());
  expect(plan);
  const auto& shared = group_.shared();
  wire::next_plan news{replaced, plan, group_.branch(), shared.schema,
                       static_cast<std::uint32_t>(shared.members_max)};
  bool tells = std::ranges::any_of(
    plan.members, [](const round_member& m) { return m.mode == member_mode::auxiliary; });
  if (shared.vectors.size() > 1 && tells) // the others know them
    for (const auto& codecs : shared.vectors)
      news.vectors.push_back({codecs});
  news.all_each_epoch = shared.all_each_epoch && tells;
  tell_others(plan, news);
}

void group_averager::tell(const peer_record& to, wire::event what) {
  if (!ctx_.links->tell(to.id, what, {}))
    send(switchboard_, notify_peer{to, std::move(what), {}});
}

void group_averager::tell_others(const round_plan& plan, const wire::event& what) {
  for (const auto& m : plan.members)
    if (m.peer.id != ctx_.record.id)
      tell(m.peer, what);
}

void group_averager::notify_listener() {
  if (listener_)
    send(listener_, view());
}

// -- messages of other peers ----------------------------------------------------------------------

void group_averager::on_event(const inbound_event& event) {
  event.release();
  if (const auto* plan = std::get_if<wire::next_plan>(&event.what))
    on_next_plan(event.from, *plan);
  else if (const auto* call = std::get_if<wire::call_round>(&event.what))
    if (group_.on_call(event.from.id, call->upcoming))
      notify_called();
}

void group_averager::on_next_plan(const peer_record& from, const wire::next_plan& message) {
  if (!entry_)
    return judge_plan(from, message, false);
  request(matchmaker_, members_.request_timeout, is_plan_awaited{from.id})
    .then([this, from, message,
           asked = entry_](bool awaited) { judge_plan(from, message, awaited && entry_ == asked); },
          [this, from, message](const caf::error&) { judge_plan(from, message, false); });
}

/// @param awaited we have applied to its sender.
void group_averager::judge_plan(const peer_record& from, const wire::next_plan& message,
                                bool awaited) {
  auto refuse = [&](const failure& why) {
    log_about about{{.remote = from.id, .reason = why.code}};
    ctx_.log_caused("refused plans", now(), spdlog::level::warn,
                    "peer " + short_name(from.id)
                      + " sent a plan that we refuse: " + to_string(why));
    ctx_.metrics->count_refused_input(why.code);
    decline(from.id, message);
    if (awaited)
      send(matchmaker_, plan_judged{from.id, 0, why});
  };
  bool forged = message.plan.id != id_of_change(message.replaces, message.plan);
  if (forged || !ctx_.links->may_believe(message.plan, from.id))
    return refuse({ec::protocol_violation,
                   forged ? "plan: its id is that of another plan"
                          : "plan: it says that all members are of one user on one host"});
  if (awaited) {
    if (auto entered = enter(from.id, message); !entered)
      refuse(entered.error());
    return;
  }
  if (!group_.is_member())
    return decline(from.id, message); // we no longer wait for it
  auto changed = group_.on_plan(from.id, message.replaces, message.plan);
  if (!changed)
    return refuse(changed.error());
  if (!*changed)
    return;
  expect(group_.next()); // perhaps a later plan, which had arrived early
  if (current_) {
    current_->replaced = true;
    round_.cancel({ec::cancelled, "the group's plan has changed"}, true);
  }
  notify_listener();
  notify_called();
}

status group_averager::enter(const peer_id& leader, const wire::next_plan& message) {
  if (takes_any_group()) { // it adopts the terms of the group that admits it
    std::vector<codec_plan> vectors;
    for (const auto& each : message.vectors)
      vectors.push_back(each.codecs);
    WAGGLE_TRY(terms,
               adopted_terms(members_, message.plan, message.schema, message.members_max,
                             std::move(vectors), message.all_each_epoch, config_.elements_max));
    use(std::move(*terms));
  }
  if (message.branch != entry_->branch)
    return failure{ec::wrong_run, "its group has changed to another history"};
  group_.become(self());
  WAGGLE_TRY(entered, group_.enter(leader, message.plan, message.branch));
  auto asked = std::exchange(entry_, nullptr);
  send(matchmaker_, plan_judged{leader, message.plan.members.size(), {}});
  lead_.entered(leader); // it learnt our bandwidth when we asked it
  train(message.branch, asked->parent);
  log_about about{{.epoch = message.plan.epoch, .round = message.plan.id}};
  ctx_.log->debug("entered a group of {} at epoch {}", message.plan.members.size(),
                  message.plan.epoch.value());
  asked->promise.deliver(view());
  expect(message.plan);
  notify_called();
  return waggle::done{};
}

void group_averager::notify_called() {
  if (group_.is_called() && !current_ && listener_)
    send(listener_, round_called{group_.next().epoch});
}

/// We refuse a plan, or no longer want it. Its members are told only if the plan is what its id
/// says, and is not a forgery of our own group's: otherwise anybody could take us out of a round by
/// sending us an invalid plan with its id.
void group_averager::decline(const peer_id& from, const wire::next_plan& message) {
  const auto& plan = message.plan;
  bool in_group = group_.is_member();
  bool of_our_group = in_group && group_.contains(from);
  if (plan.id != id_of_change(message.replaces, plan) || !may_admit(from, plan)
      || (of_our_group && group_.next().members.front().peer.id != from)
      || (in_group && group_.next().id == plan.id))
    return;
  stay_out_of(plan);
}

/// Tells the members of a plan that we do not take part, so that their round does not wait for us.
/// @param dials also where no link is up. A forged plan must not make us dial the addresses in it.
void group_averager::stay_out_of(const round_plan& plan, bool dials) {
  auto message = refusal_of(plan, ctx_.record.id, ec::cancelled);
  for (const auto& m : plan.members)
    if (message && m.peer.id != ctx_.record.id) {
      if (dials)
        send(switchboard_, notify_peer{m.peer, *message, {}});
      else
        ctx_.links->tell(m.peer.id, *message, {});
    }
}

// -- rounds ---------------------------------------------------------------------------------------

caf::result<group_round> group_averager::average(average_in_group& msg) {
  if (!group_.is_member())
    return to_caf(ec::not_ready, "this peer is in no group");
  if (group_.next().epoch != msg.epoch)
    return to_caf(ec::epoch_mismatch, "our group is at another epoch");
  if (current_)
    return to_caf(ec::overloaded, "one round at a time");
  auto elements = coding_ ? elements_ : group_.next().elements;
  if (msg.values ? msg.values->size() != elements : !takes_any_group())
    return to_caf(ec::wrong_shape, "the vector has another length than the group's");
  if (!is_weight(msg.weight))
    return to_caf(ec::bad_weight, "a weight must be 0, or finite and positive");
  if (msg.fills && (coding_ || config_.error_feedback > 0))
    return to_caf(ec::bad_config, "a coding and error feedback need the whole vector at once");
  if (msg.residual && config_.error_feedback > 0)
    feedback_.add(*msg.residual);
  auto& run = *(current_ = std::make_shared<running>());
  run.branch = group_.branch();
  run.promise = make_response_promise<group_round>();
  run.values = msg.values;
  run.step.what = std::move(msg);
  run.step.began = now();
  auto promise = run.promise;
  auto call = run.step.what.call;
  if (coding_)
    begin_coded(call);
  else
    start_round(call);
  return promise;
}

void group_averager::start_round(bool call) {
  auto& run = *current_;
  auto& step = run.step;
  const auto& plan = group_.next();
  run.replaced = false;
  step.plan = plan;
  if (plan.members.size() == 1 && !one_round_) // no other member to agree with
    return on_committed(report_of_one(plan, step.what.weight, step.what.values));
  if (call)
    tell_others(plan, wire::call_round{plan.id});
  // A coding keeps the error of its codecs itself.
  step.begin_sending(config_.error_feedback > 0 && !coding_ ? &feedback_ : nullptr,
                     group_.residual(), *ctx_.vectors);
  round_request wanted{plan, group_.position(), step.sent, step.what.weight, !one_round_};
  if (!one_round_)
    wanted.plan.min_contributors = fewest_contributors(plan);
  faults_.begin_round(plan, !one_round_);
  wanted.slow = faults_.slow_in(plan);
  wanted.fills = step.what.fills;
  round_.start(*this, std::move(wanted), step.time_left(now()), switchboard_);
  for (const auto& how : std::exchange(lost_, {})) { // the round would wait for them
    faults_.on_disconnected(how, now());
    round_.report_lost(how);
  }
  if (one_round_)
    return;
  for (const auto& m : plan.members)
    if (group_.is_lost(m.peer.id))
      round_.report_lost({m.peer.id, {ec::peer_lost, "its connection broke"}});
  if (lead_.is_news(plan.members.front().peer.id, now()))
    report_bandwidth(plan);
}

void group_averager::on_finished(const round_finished& msg) {
  if (!current_ || !current_->step.plan || current_->step.plan->id != msg.report.round)
    return;
  bool failed = msg.report.outcome == round_outcome::failed;
  // A member that has announced that it holds the result does not run the epoch's round again: the
  // others may have committed.
  if (failed && current_->replaced && !msg.was_prepared && group_.is_member()
      && current_->step.time_left(now()) > 0ms) {
    round_.forget();
    return start_round(true);
  }
  round_.count(msg.report);
  faults_.on_round(msg.report, now());
  auto report = msg.report;
  if (failed && msg.was_prepared)
    current_->step.held = current_->step.plan;
  current_->step.settle(feedback_, report, ctx_.record.id);
  if (failed) {
    group_.leave();
    return deliver(std::move(report));
  }
  report.values = current_->step.result(report.values, report.weight_sum, *ctx_.vectors);
  if (!one_round_)
    return on_committed(std::move(report));
  company_ = std::max<std::size_t>(report.participants.size(), 1);
  group_.leave();
  deliver(std::move(report));
}

void group_averager::on_committed(round_report report) {
  round_.forget();
  auto& run = *current_;
  if (!keeps_majority(*run.step.plan, stayed_of(*run.step.plan, report))) {
    run.keeps_majority = false;
    run.branch = forked(run.branch, report.round);
  }
  // Not by the group's next plan: another one may have replaced it while the round was prepared.
  bool first = !run.first && group_.shared().all_each_epoch;
  settle_group(report);
  if (first)
    begin_second_round(std::move(report));
  else if (run.first)
    decode(std::move(report));
  else
    deliver(std::move(report));
}

/// The round was committed: determines the members of the next one.
void group_averager::settle_group(const round_report& report) {
  if (!group_.is_member() || group_.next().id != report.round)
    return group_.leave(); // it was decided under a plan that was replaced here
  auto stayed = stayed_of(group_.next(), report);
  if (!stayed.contains(group_.position()) || !group_.advance(stayed))
    group_.leave();
}

void group_averager::deliver(round_report report) {
  auto run = std::exchange(current_, nullptr);
  round_.forget();
  between_rounds();
  if (group_.is_member())
    expect(group_.next());
  // Only matchmaking, which forms groups without a history, has a smallest size.
  auto smallest = std::max<std::size_t>(members_.min_group_size, members_.min_contributors);
  if (group_.is_member() && group_.branch().is_zero() && group_size() < smallest)
    quit_from({ec::too_few, {}});
  group_round ended;
  ended.branch = history_ = run->branch;
  ended.keeps_majority = run->keeps_majority;
  ended.report = std::move(report);
  ended.report.kind = config_.kind;
  ended.group = view();
  ended.avoided = faults_.excluded(group_size(), now());
  run->promise.deliver(std::move(ended));
  notify_called();
}

// -- bandwidths and links -------------------------------------------------------------------------

void group_averager::report_bandwidth(const round_plan& plan) {
  const auto& leader = plan.members.front().peer;
  bool leaves = ctx_.bandwidth && ctx_.bandwidth->is_withdrawn();
  auto own = leaves ? std::optional{0.0} : lead_.bandwidth();
  if (leader.id == ctx_.record.id)
    lead_.report(leader.id, own);
  else
    tell(leader, wire::bandwidth_report{plan.id, own});
}

void group_averager::on_disconnected(const peer_disconnected& msg) {
  group_.withdraw(msg.peer);
  group_.lost(msg.peer);
  if (one_round_ && !current_ && group_.contains(msg.peer))
    lost_.push_back(msg);
  faults_.on_disconnected(msg, now());
  round_.report_lost(msg);
}

} // namespace waggle
