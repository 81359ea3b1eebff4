// average_vector ─► persistent group? ─ yes ──► trigger? ─► allreduce_round ─► round_finished ─► report
//                        └ no ─► matchmaker ─► group_formed ┘       │
//                    ▲                                              └ failed, and time is left ─┐
//                    └──────────────────────────────────────────────────────────────────────────┘

#include "actors/averaging/averager.hpp"

#include <algorithm>
#include <array>

#include "actors/guard.hpp"
#include "runtime/allreduce/round_messages.hpp"

namespace waggle {

namespace {

/// Whether another attempt with another group may help.
bool may_retry(ec why) {
  switch (why) {
    case ec::excluded: // the others have finished, or are about to
    case ec::shutting_down:
    case ec::internal:
      return false;
    default:
      return true;
  }
}

failure not_finite() {
  return {ec::non_finite, "the vector holds NaN or infinite values"};
}

} // namespace

averager::averager(caf::actor_config& cfg, node_context ctx, averaging_config config,
                   switchboard_actor switchboard, matchmaker_actor matchmaker)
  : averager_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    switchboard_(std::move(switchboard)), matchmaker_(std::move(matchmaker)),
    bandwidth_(ctx_.bandwidth, config_.measures_bandwidth), round_(ctx_, config_),
    faults_(ctx_, config_.kind) {
  end_on_exception(this, ctx_);
}

void averager::on_exit() {
  current_.reset();
  switchboard_ = nullptr;
  matchmaker_ = nullptr;
  round_.end();
}

averager::behavior_type averager::make_behavior() {
  if (auto valid = check_averaging_config(config_); !valid) {
    ctx_.log->error("averaging cannot begin: {}", valid.error().detail);
    quit(to_caf(valid.error()));
    return behavior_type::make_empty_behavior();
  }
  round_.begin(*this);
  set_down_handler([this](const caf::down_msg& down) {
    if (round_.is_round(down.source))
      on_round_down(down.reason);
  });
  set_exit_handler([this](const caf::exit_msg& msg) {
    round_.exit(*this, msg.reason);
    quit(msg.reason);
  });
  return {
    [this](average_vector& msg) { return begin(msg); },
    [this](const trigger_step& msg) { trigger(msg); },
    [this](const await_group& msg) { return await(msg); },
    [this](const cancel_step& msg) {
      if (is_current(msg.step))
        cancel({ec::cancelled, {}});
    },
    [this](const get_step_stage& msg) {
      return is_current(msg.step) ? current_->stage : step_stage::finished;
    },
    [this](const peer_connected& msg) {
      if (current_)
        std::erase_if(current_->lost, [&](const auto& one) { return one.peer == msg.peer.id; });
    },
    [this](const peer_disconnected& msg) { on_disconnected(msg); },
    [this](const round_finished& msg) { on_finished(msg); },
    [this](const group_message& msg) { on_group_message(msg); },
    [this](forget_old) {
      round_.on_forget_old(*this);
      faults_.show(company_, now());
    },
    [this](check_rounds) { round_.on_check(*this); },
    [this](const step_expired& msg) {
      if (current_ && steps_ == msg.generation && current_->stage == step_stage::awaiting_trigger)
        cancel({ec::timeout, "the step was not triggered before its deadline"});
    },
  };
}

result<codec_plan> averager::codecs_of(const average_vector& msg, std::uint64_t elements) const {
  if (msg.tensors)
    return plan_codecs(config_.codec, *msg.tensors);
  std::array<tensor_info, 1> whole{{{"0", elements, config_.role}}};
  return plan_codecs(config_.codec, whole);
}

// -- one step -----------------------------------------------------------------------------------

caf::result<round_report> averager::begin(average_vector& msg) {
  if (auto wrong = check_request(msg, config_.auxiliary); wrong.code != ec::none)
    return to_caf(wrong);
  if (current_)
    return to_caf(ec::overloaded, "one vector at a time");
  // For a persistent group the values are not checked first: that would cost a small round a tenth
  // of its time, and the reducers check them anyway, except at weight 0. Before a search they are
  // checked: other peers must not form a group for values that cannot be averaged.
  bool known_finite = !msg.values || !(msg.reuse_group && msg.weight > 0 && group_.last());
  if (known_finite && msg.values && !all_finite(*msg.values))
    return to_caf(not_finite());
  auto elements = msg.values ? msg.values->size() : msg.elements;
  auto codecs = codecs_of(msg, elements);
  if (!codecs)
    return to_caf(codecs.error());
  if (elements_of(*codecs) != elements)
    return to_caf(ec::wrong_shape, "the tensors do not add up to the vector");
  ++steps_;
  auto& step = current_.emplace();
  step.promise = make_response_promise<round_report>();
  step.what = std::move(msg);
  step.elements = elements;
  step.codecs = std::move(*codecs);
  step.triggered = !step.what.require_trigger;
  step.known_finite = known_finite;
  step.began = now();
  auto promise = step.promise;
  if (step.what.require_trigger)
    delayed_send(this, step.what.deadline, step_expired{steps_});
  attempt();
  return promise;
}

void averager::attempt() {
  auto& step = *current_;
  round_.forget();
  step.begin_attempt(now());
  auto plan = persistent_plan();
  if (!plan)
    return search();
  if (step.what.expected_peers != 0)
    return keep_group(*plan);
  // The caller named no number of peers: the group must not go on alone while others look for one.
  request(matchmaker_, 1s, get_seekers{step.codecs})
    .then(while_searching<seekers>([this](const seekers& found) {
            auto plan = persistent_plan(); // the group may be dissolved by now
            auto belongs = [&](const peer_id& peer) { return is_member(peer, *plan); };
            if (plan && std::all_of(found.peers.begin(), found.peers.end(), belongs))
              keep_group(*plan);
            else
              search();
          }),
          while_searching<caf::error>([this](const caf::error&) { search(); }));
}

std::optional<round_plan> averager::persistent_plan() const {
  const auto& step = *current_;
  return step.what.reuse_group ? group_.next(step.what.epoch, step.codecs, step.what.expected_peers)
                               : std::nullopt;
}

void averager::keep_group(const round_plan& plan) {
  current_->follows = group_.last()->id;
  // A member that began it has not received the new partition yet: see persistent_group.
  if (auto replaced = group_.replaced(plan.epoch))
    will_not_begin(*replaced);
  on_group(plan);
}

void averager::search() {
  auto& step = *current_;
  leave_persistent_group();
  if (!step.is_finite())
    return deliver_failure(not_finite());
  if (bandwidth_.update(now()))
    report_to_matchmaker();
  auto left = time_left();
  find_group question{step.what.epoch,         step.codecs, step.what.gather, {}, left,
                      step.what.expected_peers};
  // In a retry, the wait would only delay the group.
  if (step.failures == 0)
    question.scheduled_in = step.what.scheduled_in;
  question.avoided = faults_.excluded(company_, now());
  request(matchmaker_, left + 2s, question)
    .then(
      [this, generation = steps_](const group_formed& formed) {
        if (!is_searching(generation))
          return decline(formed.plan);
        on_search_over();
        current_->regrouped = formed.regrouped;
        group_.agree_on(formed.plan, formed.terms);
        on_group(formed.plan);
      },
      while_searching<caf::error>([this](const caf::error& why) {
        on_search_over();
        company_ = 1; // fewer are excluded in the next search
        deliver_failure(from_caf(why));
      }));
}

/// This group was found just after we gave up the search. Its members would wait for us.
void averager::decline(const round_plan& plan) {
  will_not_begin(plan.id);
  notify_members(plan, ec::cancelled);
}

void averager::on_search_over() {
  auto& step = *current_;
  step.matchmaking_seconds += seconds_of(now() - step.attempt_began);
}

void averager::on_group(const round_plan& plan) {
  auto& step = *current_;
  if (!is_member(ctx_.record.id, plan) || plan.elements != step.elements)
    return deliver_failure({ec::internal, "matchmaking made a plan that does not fit"});
  step.plan = plan;
  step.stage = step_stage::awaiting_trigger;
  step.tell_stage();
  if (step.triggered)
    start_round();
  else
    ctx_.rounds->expect(plan); // what members send before our trigger is not that of strangers
}

void averager::start_round() {
  auto& step = *current_;
  const auto& plan = *step.plan;
  step.stage = step_stage::running_allreduce;
  step.begin_sending(config_.error_feedback ? &feedback_ : nullptr, *ctx_.vectors);
  round_request wanted{plan, position_of(ctx_.record.id, plan), step.sent, step.what.weight};
  faults_.begin_round(plan);
  round_.start(*this, std::move(wanted), time_left(), switchboard_);
  for (const auto& how : step.lost) { // the round would wait for them
    faults_.on_disconnected(how, now());
    round_.report_lost(how);
  }
  if (step.what.reuse_group && !step.regrouped && bandwidth_.update(now())) {
    report_to_matchmaker();
    report_to_leader(plan);
  }
}

void averager::on_finished(const round_finished& msg) {
  if (!current_ || !current_->plan || current_->plan->id != msg.report.round)
    return;
  auto& step = *current_;
  bool failed = msg.report.outcome == round_outcome::failed;
  if (failed && step.replaced && !step.cancelled && time_left() > 0ms)
    return attempt(); // with the partition that the leader announced
  abandoned_.reset();
  if (msg.all_took_part && !step.regrouped) {
    group_.establish(*step.plan);
  } else {
    group_.dissolve();
    if (msg.report.outcome == round_outcome::complete && !step.regrouped)
      abandoned_ = *step.plan;
  }
  round_.count(msg.report);
  faults_.on_round(msg.report, now());
  if (!failed)
    company_ = std::max<std::size_t>(msg.report.participants.size(), 1);
  // A member that excludes us because of our values cannot tell us; we check them ourselves.
  if (failed && !step.is_finite())
    return deliver_failure(not_finite());
  // A persistent group's round that a member did not join took almost no time: it is not counted
  // as a failure.
  if (failed && (step.follows.is_zero() || msg.report.why.code != ec::not_looking))
    ++step.failures;
  if (failed && !step.cancelled && step.what.allow_retries && may_retry(msg.report.why.code)
      && step.failures <= config_.retries_max && time_left() > 0ms) {
    ctx_.log->info("round {} failed, trying again: {}", short_name(msg.report.round),
                   to_string(msg.report.why));
    return attempt();
  }
  deliver(msg.report);
}

void averager::deliver(round_report report) {
  auto step = std::move(*current_);
  current_.reset();
  round_.forget();
  step.settle(feedback_, report, ctx_.record.id);
  report.kind = config_.kind;
  report.matchmaking_seconds = step.matchmaking_seconds;
  report.values = step.result(std::move(report.values), report.weight_sum, *ctx_.vectors);
  step.stage = step_stage::finished;
  step.tell_stage();
  step.promise.deliver(std::move(report));
}

void averager::deliver_failure(failure why) {
  round_report report;
  report.why = std::move(why);
  if (current_->plan)
    report.round = current_->plan->id;
  deliver(std::move(report));
}

/// The round ended without a report.
void averager::on_round_down(const caf::error& why) {
  group_.dissolve();
  round_report report;
  report.round = current_->plan->id;
  report.why = from_caf(why);
  round_.count(report);
  deliver(std::move(report));
}

// -- control of the step -----------------------------------------------------------------------

bool averager::is_current(std::uint64_t step) const {
  return current_ && current_->what.step == step;
}

caf::result<step_stage> averager::await(const await_group& msg) {
  if (!is_current(msg.step))
    return step_stage::finished;
  if (current_->stage != step_stage::looking_for_group)
    return current_->stage;
  current_->await_group = make_response_promise<step_stage>();
  return *current_->await_group;
}

void averager::trigger(const trigger_step& msg) {
  if (!is_current(msg.step))
    return;
  auto& step = *current_;
  if (step.triggered || step.stage == step_stage::running_allreduce)
    return ctx_.log->debug("step {} was triggered again", msg.step);
  auto wanted = step.what;
  if (msg.values)
    wanted.values = msg.values;
  wanted.weight = msg.weight.value_or(wanted.weight);
  wanted.elements = step.elements;
  wanted.require_trigger = false;
  auto wrong = check_request(wanted, config_.auxiliary);
  if (wrong.code == ec::none && wanted.values && !all_finite(*wanted.values))
    wrong = not_finite();
  if (wrong.code != ec::none) {
    leave_group(wrong.code);
    return deliver_failure(wrong);
  }
  step.what = std::move(wanted);
  step.known_finite = true;
  step.triggered = true;
  if (step.stage == step_stage::awaiting_trigger)
    start_round();
}

void averager::cancel(const failure& why) {
  auto& step = *current_;
  step.cancelled = true;
  switch (step.stage) {
    case step_stage::looking_for_group:
      send(matchmaker_, cancel_search{});
      return deliver_failure(why);
    case step_stage::awaiting_trigger:
      leave_group(why.code);
      return deliver_failure(why);
    case step_stage::running_allreduce:
      round_.cancel(why);
      return; // the round sends its report
    case step_stage::finished:
      return;
  }
}

/// Notifies the group that we do not take part in its round, which we have not begun.
void averager::leave_group(ec why) {
  auto& step = *current_;
  if (!step.plan)
    return;
  will_not_begin(step.plan->id);
  notify_members(*step.plan, why);
}

/// Messages of this round are answered from now on, not kept.
void averager::will_not_begin(const round_id& round) {
  ctx_.rounds->finish(round, {round, 0, false, {}, false, false}, now());
}

void averager::notify_members(const round_plan& plan, ec why) {
  if (auto message = refusal_of(plan, ctx_.record.id, why))
    for (const auto& member : plan.members)
      if (member.peer.id != ctx_.record.id)
        send(switchboard_, notify_peer{member.peer, *message, {}});
}

void averager::on_disconnected(const peer_disconnected& msg) {
  if (group_.contains(msg.peer)) {
    if (!round_.runs())
      abandoned_ = group_.last();
    group_.dissolve();
  }
  faults_.on_disconnected(msg, now());
  round_.report_lost(msg);
  if (current_ && current_->stage == step_stage::awaiting_trigger
      && is_member(msg.peer, *current_->plan))
    current_->lost.push_back(msg);
}

} // namespace waggle
