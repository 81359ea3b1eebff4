// average_vector ─► open group? ─ yes ───────────────────┬─► group_averager ─► group_round ──┬─► report
//                     └ no ─► matchmaker ─► group_formed ─┴ or allreduce_round ─► finished ──┤
//                 ▲                                                                          │
//                 └──────────────────────────────────────────────── failed, and time is left ┘

#include "actors/averaging/averager.hpp"

#include <algorithm>
#include <array>

#include "actors/guard.hpp"
#include "runtime/allreduce/round_messages.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

/// After so many open groups did not admit us, a step searches for peers that search, too.
constexpr int groups_tried_max = 3;

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
                   switchboard_actor switchboard, matchmaker_actor matchmaker,
                   kept_group_actor group)
  : averager_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    switchboard_(std::move(switchboard)), matchmaker_(std::move(matchmaker)),
    group_(std::move(group)), bandwidth_(ctx_.bandwidth, config_.measures_bandwidth),
    round_(ctx_, config_), faults_(ctx_, config_.kind) {
  end_on_exception(this, ctx_);
}

void averager::on_exit() {
  if (current_) // whoever waits learns it now, and not at its deadline
    current_->promise.deliver(to_caf(ec::shutting_down, "the averager has ended"));
  current_.reset();
  switchboard_ = nullptr;
  matchmaker_ = nullptr;
  group_ = nullptr;
  round_.end();
}

averager::behavior_type averager::make_behavior() {
  if (!group_)
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
    [](const group_message&) { /* these groups have one round */ },
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
  auto elements = msg.values ? msg.values->size() : msg.elements;
  auto codecs = codecs_of(msg, elements);
  if (!codecs)
    return to_caf(codecs.error());
  if (elements_of(*codecs) != elements)
    return to_caf(ec::wrong_shape, "the tensors do not add up to the vector");
  // For a group that is kept the values are not checked first: that would cost a small round a
  // tenth of its time, and the reducers check them anyway, except at weight 0. Before a search they
  // are checked: other peers must not form a group for values that cannot be averaged.
  bool known_finite = !msg.values || msg.weight == 0 || !keeps_group(msg, *codecs);
  if (known_finite && msg.values && !all_finite(*msg.values))
    return to_caf(not_finite());
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
  step.kept_group = false;
  if (!keeps_group(step.what, step.codecs))
    return search();
  if (admits(step.what) && kept_.members.back() == ctx_.record.id)
    return make_room_or_stay();
  stay();
}

void averager::search() {
  auto& step = *current_;
  leave_open_group();
  if (!step.is_finite())
    return deliver_failure(not_finite());
  if (bandwidth_.update(now()))
    send(matchmaker_, set_bandwidth{bandwidth_.reported()});
  auto left = time_left();
  find_group question{
    step.what.epoch, step.codecs, step.what.gather, left, step.what.expected_peers, {}, false};
  question.avoided = group_ ? avoided_ : faults_.excluded(company_, now());
  question.open_groups = admits(step.what) && step.not_admitted < groups_tried_max;
  request(matchmaker_, left + 2s, question)
    .then(
      [this, generation = steps_](const group_formed& formed) {
        if (is_searching(generation))
          on_found(formed);
        else if (!formed.open_group)
          decline(formed.plan);
      },
      while_searching<caf::error>([this](const caf::error& why) {
        on_search_over();
        company_ = 1; // fewer are excluded in the next search
        avoided_.clear();
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

void averager::on_found(const group_formed& formed) {
  if (formed.open_group)
    return enter(*formed.open_group);
  on_search_over();
  auto& step = *current_;
  const auto& plan = formed.plan;
  if (!is_member(ctx_.record.id, plan) || plan.elements != step.elements)
    return deliver_failure({ec::internal, "matchmaking made a plan that does not fit"});
  step.plan = plan;
  step.terms = formed.terms;
  step.others_left = formed.regrouped || (formed.left_out && step.what.expected_peers == 0);
  step.stage = step_stage::awaiting_trigger;
  step.tell_stage();
  if (step.triggered)
    start_round();
  else
    ctx_.rounds->expect(plan); // what members send before our trigger is not that of strangers
}

void averager::start_round() {
  auto& step = *current_;
  step.stage = step_stage::running_allreduce;
  if (group_) {
    if (step.plan)
      adopt();
    return run_in_group();
  }
  const auto& plan = *step.plan;
  step.begin_sending(config_.error_feedback ? &feedback_ : nullptr, *ctx_.vectors);
  round_request wanted{plan, position_of(ctx_.record.id, plan), step.sent, step.what.weight};
  faults_.begin_round(plan);
  round_.start(*this, std::move(wanted), time_left(), switchboard_);
  for (const auto& how : step.lost) { // the round would wait for them
    faults_.on_disconnected(how, now());
    round_.report_lost(how);
  }
}

void averager::on_finished(const round_finished& msg) {
  if (!current_ || !current_->plan || current_->plan->id != msg.report.round)
    return;
  round_.count(msg.report);
  faults_.on_round(msg.report, now());
  if (msg.report.outcome == round_outcome::failed && msg.was_prepared)
    current_->held = current_->plan;
  on_report(msg.report);
}

/// The round has ended: the step, too, or it tries again.
void averager::on_report(round_report report) {
  auto& step = *current_;
  bool failed = report.outcome == round_outcome::failed;
  if (!failed)
    company_ = std::max<std::size_t>(report.participants.size(), 1);
  // A member that excludes us because of our values cannot tell us; we check them ourselves.
  if (failed && !step.is_finite())
    return deliver_failure(not_finite());
  // The next attempt finds a group, so this was not one of the attempts that are counted.
  if (failed && !step.kept_group)
    ++step.failures;
  if (failed && !step.cancelled && step.what.allow_retries && may_retry(report.why.code)
      && step.failures <= config_.retries_max && time_left() > 0ms) {
    log_about about{{.epoch = report.epoch, .round = report.round, .reason = report.why.code}};
    ctx_.log->info("round {} failed, trying again: {}", short_name(report.round),
                   to_string(report.why));
    return attempt();
  }
  deliver(std::move(report));
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
  if (wrong.code != ec::none)
    return cancel(wrong);
  step.what = std::move(wanted);
  step.known_finite = true;
  step.triggered = true;
  if (step.stage == step_stage::awaiting_trigger)
    start_round();
}

void averager::cancel(const failure& why) {
  auto& step = *current_;
  step.cancelled = true;
  leave_open_group();
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
  faults_.on_disconnected(msg, now());
  round_.report_lost(msg);
  if (current_ && current_->stage == step_stage::awaiting_trigger && current_->plan
      && is_member(msg.peer, *current_->plan))
    current_->lost.push_back(msg);
}

} // namespace waggle
