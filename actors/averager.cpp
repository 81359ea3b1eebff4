// average_vector ─► persistent group? ─ yes ──► trigger? ─► allreduce_round ─► round_finished ─► report
//                        └ no ─► matchmaker ─► group_formed ┘       │
//                    ▲                                              └ failed, and time is left ─┐
//                    └──────────────────────────────────────────────────────────────────────────┘

#include "actors/averager.hpp"

#include <algorithm>
#include <array>

#include "actors/allreduce_part.hpp"
#include "actors/guard.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"

namespace waggle {

namespace {

using self_pointer = averager_impl::stateful_pointer<averager_state>;

/// Whether trying again with another group may help.
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

bool is_member(const peer_id& peer, const round_plan& plan) {
  return std::any_of(plan.members.begin(), plan.members.end(),
                     [&](const round_member& m) { return m.peer.id == peer; });
}

struct steward {
  self_pointer self;
  const node_context& ctx;
  const averaging_config& config;
  const switchboard_actor& switchboard;
  const matchmaker_actor& matchmaker;

  averager_state& state() const { return self->state; }
  steady_time now() const { return self->clock().now(); }

  result<codec_plan> codecs_of(const average_vector& msg, std::uint64_t elements) const {
    if (msg.tensors)
      return plan_codecs(config.codec, *msg.tensors);
    std::array<tensor_info, 1> whole{{{"0", elements, config.role}}};
    return plan_codecs(config.codec, whole);
  }

  milliseconds time_left() const { return state().current->time_left(now()); }

  /// What to do with the answer to a question of the step that looks for a group; nothing, if that
  /// is over by then.
  template <class Answer, class Action>
  auto while_searching(Action action) const {
    return [self = self, ctx = ctx, config = config, board = switchboard, maker = matchmaker,
            generation = state().steps, action = std::move(action)](const Answer& answer) {
      const auto& st = self->state;
      if (st.current && st.steps == generation && !st.current->plan)
        action(steward{self, ctx, config, board, maker}, answer);
    };
  }

  // -- one step -----------------------------------------------------------------------------------

  static failure not_finite() {
    return {ec::non_finite, "the vector holds NaN or infinite values"};
  }

  caf::result<round_report> begin(average_vector& msg) const {
    auto& st = state();
    if (auto wrong = check_request(msg, config.auxiliary); wrong.code != ec::none)
      return to_caf(wrong);
    if (st.current)
      return to_caf(ec::overloaded, "one vector at a time");
    // A persistent group begins at once: looking at every value first would cost a small round a
    // tenth of its time, and its reducers look anyway (not at what weighs nothing). Nobody new is
    // bothered with what cannot be averaged.
    bool known_finite = !msg.values || !(msg.reuse_group && msg.weight > 0 && st.group.last());
    if (known_finite && msg.values && !all_finite(*msg.values))
      return to_caf(not_finite());
    auto elements = msg.values ? msg.values->size() : msg.elements;
    auto codecs = codecs_of(msg, elements);
    if (!codecs)
      return to_caf(codecs.error());
    if (elements_of(*codecs) != elements)
      return to_caf(ec::wrong_shape, "the tensors do not add up to the vector");
    ++st.steps;
    auto& step = st.current.emplace();
    step.promise = self->make_response_promise<round_report>();
    step.what = std::move(msg);
    step.elements = elements;
    step.codecs = std::move(*codecs);
    step.triggered = !step.what.require_trigger;
    step.known_finite = known_finite;
    step.began = now();
    auto promise = step.promise;
    if (step.what.require_trigger)
      self->delayed_send(self, step.what.deadline, step_expired{st.steps});
    attempt();
    return promise;
  }

  void attempt() const {
    auto& st = state();
    auto& step = *st.current;
    step.begin_attempt(now());
    auto plan = persistent_plan();
    if (!plan)
      return search();
    if (step.what.expected_peers != 0)
      return keep_group(*plan);
    // Nobody told us how many to expect: a group must not stay among itself while others look for
    // one.
    self->request(matchmaker, 1s, get_seekers{step.codecs})
      .then(while_searching<seekers>([](const steward& s, const seekers& found) {
              auto plan = s.persistent_plan(); // it may have fallen apart meanwhile
              auto belongs = [&](const peer_id& peer) { return is_member(peer, *plan); };
              if (plan && std::all_of(found.peers.begin(), found.peers.end(), belongs))
                s.keep_group(*plan);
              else
                s.search();
            }),
            while_searching<caf::error>([](const steward& s, const caf::error&) { s.search(); }));
  }

  std::optional<round_plan> persistent_plan() const {
    const auto& step = *state().current;
    return step.what.reuse_group
             ? state().group.next(step.what.epoch, step.codecs, step.what.expected_peers)
             : std::nullopt;
  }

  /// Matchmaking learns what was measured of our line. True if it is something else than before.
  bool tell_bandwidth() const {
    if (!ctx.line || !config.measures_bandwidth)
      return false;
    auto known = ctx.line->bytes_per_second(now());
    if (known == state().told_bandwidth)
      return false;
    state().told_bandwidth = known;
    self->send(matchmaker, set_bandwidth{known});
    return true;
  }

  void keep_group(const round_plan& plan) const {
    auto& st = state();
    st.current->follows = st.group.last()->id;
    // Whoever began it has not heard yet, or will not finish it: see persistent_group.
    if (auto replaced = st.group.replaced(plan.epoch))
      will_not_begin(*replaced);
    on_group(plan);
  }

  void search() const {
    auto& st = state();
    auto& step = *st.current;
    leave_persistent_group();
    if (!step.is_finite())
      return deliver_failure(not_finite());
    tell_bandwidth();
    auto left = time_left();
    find_group question{step.what.epoch,         step.codecs, step.what.gather, {}, left,
                        step.what.expected_peers};
    // Said again in a retry, it would only hold the group up.
    if (step.failures == 0)
      question.scheduled_in = step.what.scheduled_in;
    self->request(matchmaker, left + 2s, question)
      .then(while_searching<group_formed>([](const steward& s, const group_formed& formed) {
              s.on_search_over();
              s.state().current->regrouped = formed.regrouped;
              s.state().group.agree_on(formed.terms);
              s.on_group(formed.plan);
            }),
            while_searching<caf::error>([](const steward& s, const caf::error& why) {
              s.on_search_over();
              s.deliver_failure(from_caf(why));
            }));
  }

  void on_search_over() const {
    auto& step = *state().current;
    step.matchmaking_seconds += seconds_of(now() - step.attempt_began);
  }

  void on_group(const round_plan& plan) const {
    auto& step = *state().current;
    if (!is_member(ctx.record.id, plan) || plan.elements != step.elements)
      return deliver_failure({ec::internal, "matchmaking made a plan that does not fit"});
    step.plan = plan;
    step.stage = step_stage::awaiting_trigger;
    if (step.triggered)
      start_round();
  }

  void start_round() const {
    auto& st = state();
    auto& step = *st.current;
    const auto& plan = *step.plan;
    step.stage = step_stage::running_allreduce;
    auto mine = std::find_if(plan.members.begin(), plan.members.end(),
                             [this](const round_member& m) { return m.peer.id == ctx.record.id; });
    auto settings = config.round;
    settings.deadline = std::min(settings.deadline, std::max(time_left(), milliseconds{1}));
    step.begin_sending(config.error_feedback ? &st.feedback : nullptr, *ctx.vectors);
    round_request order{plan, static_cast<std::size_t>(mine - plan.members.begin()), step.sent,
                        step.what.weight};
    ctx.log->debug("round {} begins with {} members", short_name(plan.id), plan.members.size());
    round_handles neighbours{switchboard, caf::actor_cast<round_listener_actor>(self), st.parts};
    step.round = self->spawn<caf::monitored>(allreduce_round, ctx, settings, std::move(order),
                                             std::move(neighbours));
    if (step.what.reuse_group && !step.regrouped && tell_bandwidth())
      report_line(plan);
    if (!std::exchange(st.ticking, true))
      self->delayed_send(self, round_check_interval(config.round), check_rounds{});
  }

  void on_finished(const round_finished& msg) const {
    auto& st = state();
    if (!st.current || !st.current->plan || st.current->plan->id != msg.report.round)
      return;
    auto& step = *st.current;
    bool failed = msg.report.outcome == round_outcome::failed;
    if (failed && step.replaced && !step.cancelled && time_left() > 0ms)
      return attempt(); // the persistent group goes on, as its leader said
    if (msg.all_took_part && !step.regrouped)
      st.group.establish(*step.plan);
    else
      st.group.dissolve();
    count(msg.report);
    // Whoever leaves us out because of our values cannot tell us so; we can see it.
    if (failed && !step.is_finite())
      return deliver_failure(not_finite());
    // A persistent group that did not come together cost next to nothing: that is no failure yet.
    if (failed && (step.follows.is_zero() || msg.report.why.code != ec::not_looking))
      ++step.failures;
    if (failed && !step.cancelled && step.what.allow_retries && may_retry(msg.report.why.code)
        && step.failures <= config.retries_max && time_left() > 0ms) {
      ctx.log->info("round {} failed, trying again: {}", short_name(msg.report.round),
                    to_string(msg.report.why));
      return attempt();
    }
    deliver(msg.report);
  }

  void count(const round_report& report) const {
    if (config.observer)
      config.observer(report);
    ctx.metrics->count_round(config.kind, to_string(report.outcome), report.allreduce_seconds,
                             static_cast<double>(report.contributors.size()),
                             report.recovery_seconds);
  }

  void deliver(round_report report) const {
    auto& st = state();
    auto step = std::move(*st.current);
    st.current.reset();
    step.settle(st.feedback, report, ctx.record.id);
    report.matchmaking_seconds = step.matchmaking_seconds;
    report.values = step.result(std::move(report.values), report.weight_sum, *ctx.vectors);
    step.promise.deliver(std::move(report));
  }

  void deliver_failure(failure why) const {
    round_report report;
    report.why = std::move(why);
    if (state().current->plan)
      report.round = state().current->plan->id;
    deliver(std::move(report));
  }

  /// The round ended without a report.
  void on_round_down(const caf::error& why) const {
    state().group.dissolve();
    round_report report;
    report.round = state().current->plan->id;
    report.why = from_caf(why);
    count(report);
    deliver(std::move(report));
  }

  // -- control of the step -----------------------------------------------------------------------

  bool is_current(std::uint64_t step) const {
    return state().current && state().current->what.step == step;
  }

  void trigger(const trigger_step& msg) const {
    if (!is_current(msg.step))
      return;
    auto& step = *state().current;
    if (step.triggered || step.stage == step_stage::running_allreduce)
      return ctx.log->debug("step {} was triggered again", msg.step);
    auto wanted = step.what;
    if (msg.values)
      wanted.values = msg.values;
    wanted.weight = msg.weight.value_or(wanted.weight);
    wanted.elements = step.elements;
    wanted.require_trigger = false;
    auto wrong = check_request(wanted, config.auxiliary);
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

  void cancel(const failure& why) const {
    auto& step = *state().current;
    step.cancelled = true;
    switch (step.stage) {
      case step_stage::looking_for_group:
        self->send(matchmaker, cancel_search{});
        return deliver_failure(why);
      case step_stage::awaiting_trigger:
        leave_group(why.code);
        return deliver_failure(why);
      case step_stage::running_allreduce:
        self->send(step.round, cancel_round{why});
        return; // the round reports
      case step_stage::finished:
        return;
    }
  }

  /// Tells the group that was found, and whose round we did not begin, to go on without us.
  void leave_group(ec why) const {
    auto& step = *state().current;
    if (!step.plan)
      return;
    will_not_begin(step.plan->id);
    tell_members(*step.plan, why);
  }

  /// What comes for this round is answered, not kept.
  void will_not_begin(const round_id& round) const {
    ctx.rounds->finish(round, {round, 0, false, {}, false, false}, now());
  }

  void tell_members(const round_plan& plan, ec why) const {
    for (std::uint32_t i = 0; i < plan.members.size(); ++i)
      if (plan.members[i].peer.id == ctx.record.id)
        for (const auto& member : plan.members)
          if (member.peer.id != ctx.record.id)
            self->send(switchboard,
                       tell_peer{member.peer, wire::round_suspect{plan.id, 0, i, why}, {}});
  }

  // -- the persistent group
  // ------------------------------------------------------------------------

  void leave_persistent_group() const {
    auto& group = state().group;
    if (!group.last())
      return;
    auto plan = *group.last();
    group.dissolve();
    tell_members(plan, ec::not_looking);
  }

  void on_word(const group_message& msg) const {
    if (const auto* line = std::get_if<wire::bandwidth_report>(&msg.what))
      on_bandwidth(msg.who, *line);
    else if (const auto* anew = std::get_if<wire::new_partition>(&msg.what))
      on_new_partition(msg.who, *anew);
    else if (const auto* left = std::get_if<wire::round_suspect>(&msg.what))
      on_departed(msg.who, left->round);
  }

  /// A member of our persistent group, or of the round that follows it, wants another group.
  void on_departed(const peer_record& who, const round_id& round) const {
    auto& st = state();
    if (st.group.last() && st.group.last()->id == round && st.group.contains(who.id))
      st.group.dissolve();
    auto& step = st.current;
    if (!step || !step->plan || step->follows != round || !is_member(who.id, *step->plan))
      return;
    failure why{ec::not_looking, "a member looks for another group"};
    if (step->round) {
      self->send(step->round, cancel_round{why});
    } else {
      leave_group(ec::not_looking);
      attempt();
    }
  }

  // -- lines that change -------------------------------------------------------------------------

  /// The plan of the round that runs, or of the last one.
  const round_plan* latest_plan() const {
    const auto& st = state();
    if (st.current && st.current->plan)
      return &*st.current->plan;
    return st.group.last() ? &*st.group.last() : nullptr;
  }

  void report_line(const round_plan& plan) const {
    const auto& leader = plan.members.front().peer;
    wire::bandwidth_report word{plan.id, state().told_bandwidth};
    if (leader.id == ctx.record.id)
      on_bandwidth(leader, word);
    else
      self->send(switchboard, tell_peer{leader, word, {}});
  }

  /// We lead the group of `word.round`: is its work to be repartitioned from the next round on?
  void on_bandwidth(const peer_record& who, const wire::bandwidth_report& word) const {
    auto& st = state();
    const auto* plan = latest_plan();
    bool known = plan != nullptr
                 && (plan->id == word.round || (st.current && st.current->follows == word.round));
    if (!known || plan->members.front().peer.id != ctx.record.id)
      return;
    auto better = st.group.on_bandwidth(*plan, position_of(who.id, *plan), word.bandwidth);
    if (!better)
      return;
    ctx.log->debug("rounds after {} are repartitioned", short_name(plan->id));
    for (const auto& other : plan->members)
      if (other.peer.id != ctx.record.id)
        self->send(switchboard, tell_peer{other.peer, wire::new_partition{plan->id, *better}, {}});
  }

  /// The leader of our group divides the rounds after this one anew.
  void on_new_partition(const peer_record& who, const wire::new_partition& word) const {
    auto& st = state();
    auto& step = st.current;
    bool late = step && step->plan && step->follows == word.round;
    const auto* plan = late ? &*step->plan : latest_plan();
    if (plan == nullptr || (!late && plan->id != word.round)
        || plan->members.front().peer.id != who.id)
      return;
    auto valid =
      st.group.on_partition(word.round, *plan, word.how, position_of(ctx.record.id, *plan));
    if (!valid) {
      ctx.log->warn("peer {} divides rounds in a way that we refuse: {}", short_name(who.id),
                    to_string(valid.error()));
      ctx.metrics->count_refused_input(valid.error().code);
    }
    if (!late)
      return;
    if (step->round) {
      step->replaced = true;
      self->send(step->round, cancel_round{{ec::not_looking, "the work is repartitioned"}});
    } else {
      will_not_begin(step->plan->id);
      attempt();
    }
  }

  static std::size_t position_of(const peer_id& peer, const round_plan& plan) {
    auto found = std::find_if(plan.members.begin(), plan.members.end(),
                              [&](const round_member& m) { return m.peer.id == peer; });
    return static_cast<std::size_t>(found - plan.members.begin());
  }
};

} // namespace

status check_averaging_config(const averaging_config& config) {
  if (config.auxiliary && config.error_feedback)
    return failure{ec::bad_config, "error_feedback: an auxiliary sends nothing of its own"};
  return check_round_config(config.round);
}

averager_impl::behavior_type averager(self_pointer self, node_context ctx, averaging_config config,
                                      switchboard_actor switchboard, matchmaker_actor matchmaker) {
  end_on_exception(self, ctx);
  if (auto valid = check_averaging_config(config); !valid) {
    ctx.log->error("averaging cannot begin: {}", valid.error().detail);
    self->quit(to_caf(valid.error()));
    return averager_impl::behavior_type::make_empty_behavior();
  }
  for (std::size_t i = 0; i < config.part_workers; ++i)
    self->state.parts.push_back(self->spawn<caf::linked>(allreduce_part, ctx));
  auto with = [self, ctx, config, switchboard, matchmaker](auto&& action) {
    return action(steward{self, ctx, config, switchboard, matchmaker});
  };
  self->set_down_handler([self, with](const caf::down_msg& down) {
    auto& current = self->state.current;
    if (current && current->round && current->round.address() == down.source)
      with([&](const steward& s) { s.on_round_down(down.reason); });
  });
  self->set_exit_handler([self](const caf::exit_msg& msg) {
    if (self->state.current && self->state.current->round)
      self->send_exit(self->state.current->round, msg.reason);
    self->quit(msg.reason);
  });
  self->delayed_send(self, 1s, forget_old{});
  return {
    [](const inbound_call&) -> caf::result<outbound_answer> {
      return to_caf(ec::protocol_violation, "averaging answers no requests");
    },
    [self, ctx](const inbound_event& msg) { ctx.rounds->deliver(msg, self->clock().now()); },
    [with](average_vector& msg) { return with([&](const steward& s) { return s.begin(msg); }); },
    [with](const trigger_step& msg) { with([&](const steward& s) { s.trigger(msg); }); },
    [with](const cancel_step& msg) {
      with([&](const steward& s) {
        if (s.is_current(msg.step))
          s.cancel({ec::cancelled, {}});
      });
    },
    [with](const get_step_stage& msg) {
      return with([&](const steward& s) {
        return s.is_current(msg.step) ? s.state().current->stage : step_stage::finished;
      });
    },
    [](const peer_connected&) { /* who comes is met by matchmaking */ },
    [self](const peer_disconnected& msg) {
      auto& st = self->state;
      if (st.group.contains(msg.peer))
        st.group.dissolve();
      if (st.current && st.current->round)
        self->send(st.current->round, msg);
    },
    [with](const round_finished& msg) { with([&](const steward& s) { s.on_finished(msg); }); },
    [with](const group_message& msg) { with([&](const steward& s) { s.on_word(msg); }); },
    [self, ctx](forget_old again) {
      for (auto unwanted = ctx.rounds->forget_old(self->clock().now()); unwanted > 0; --unwanted)
        ctx.metrics->count_refused_input(ec::unknown_round);
      self->delayed_send(self, 1s, again);
    },
    [self, config](check_rounds again) {
      auto& st = self->state;
      st.ticking = st.current && st.current->round;
      if (!st.ticking)
        return;
      self->send(st.current->round, check_round{});
      self->delayed_send(self, round_check_interval(config.round), again);
    },
    [self, with](const step_expired& msg) {
      auto& st = self->state;
      if (st.current && st.steps == msg.generation
          && st.current->stage == step_stage::awaiting_trigger)
        with([](const steward& s) { s.cancel({ec::timeout, "nobody triggered the step"}); });
    },
  };
}

} // namespace waggle
