// average_vector ─► standing group? ─ yes ─────────────► allreduce_round ─► round_finished ─► report
//                        └ no ─► matchmaker ─► group_formed ┘       │
//                    ▲                                              └ failed, and time is left ─┐
//                    └──────────────────────────────────────────────────────────────────────────┘
// peers' part, round_* ─► the round | parked until it begins | answered from memory when it is over

#include "actors/averager.hpp"

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = averager_impl::stateful_pointer<averager_state>;

struct round_of {
  template <class RoundEvent>
  round_id operator()(const RoundEvent& event) const {
    if constexpr (requires { event.round; })
      return event.round;
    else
      return {};
  }
};

/// Whether trying again with another group may help.
bool may_retry(ec why) {
  switch (why) {
    case ec::excluded:
    case ec::cancelled:
    case ec::shutting_down:
    case ec::non_finite:
    case ec::bad_weight:
    case ec::wrong_shape:
    case ec::internal:
      return false;
    default:
      return true;
  }
}

struct steward {
  self_pointer self;
  const node_context& ctx;
  const averaging_config& config;
  const switchboard_actor& switchboard;
  const matchmaker_actor& matchmaker;

  averager_state& state() const { return self->state; }
  steady_time now() const { return self->clock().now(); }

  codec_plan codecs() const { return {{state().current->what.values->size(), config.codec}}; }

  milliseconds time_left() const {
    const auto& step = *state().current;
    auto left = step.began + step.what.deadline - now();
    return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds{0});
  }

  // -- one step -----------------------------------------------------------------------------------

  caf::result<round_report> begin(average_vector& msg) const {
    auto& st = state();
    if (!msg.values || msg.values->empty())
      return to_caf(ec::wrong_shape, "there is nothing to average");
    if (msg.values->size() > plan_elements_max)
      return to_caf(ec::oversize, "the vector has more values than a round may have");
    if (!std::isfinite(msg.weight) || msg.weight < 0)
      return to_caf(ec::bad_weight, "a weight must be finite and not negative");
    if (!all_finite(*msg.values))
      return to_caf(ec::non_finite, "the vector holds NaN or infinite values");
    if (st.current)
      return to_caf(ec::overloaded, "one vector at a time");
    ++st.steps;
    auto& step = st.current.emplace();
    step.promise = self->make_response_promise<round_report>();
    step.what = std::move(msg);
    step.began = now();
    auto promise = step.promise;
    attempt();
    return promise;
  }

  void attempt() const {
    auto& st = state();
    auto& step = *st.current;
    step.attempt_began = now();
    step.plan.reset();
    step.round = nullptr;
    step.follows = {};
    auto plan = step.what.standing
                  ? st.group.next(step.what.epoch, codecs(), step.what.expected_peers)
                  : std::nullopt;
    if (!plan)
      return search();
    if (step.what.expected_peers != 0)
      return keep_group(*plan);
    // Nobody told us how many to expect: a group must not stay among itself while others look for
    // one.
    self->request(matchmaker, 1s, get_seekers{codecs()})
      .then(
        [self = self, ctx = ctx, config = config, board = switchboard, maker = matchmaker,
         generation = st.steps, plan = *plan](const seekers& found) {
          steward s{self, ctx, config, board, maker};
          if (!s.awaits_group(generation))
            return;
          bool newcomers = std::any_of(found.peers.begin(), found.peers.end(),
                                       [&](const peer_id& peer) { return !is_member(peer, plan); });
          auto& last = self->state.group.last();
          if (newcomers || !last || last->members != plan.members)
            s.search();
          else
            s.keep_group(plan);
        },
        [self = self, ctx = ctx, config = config, board = switchboard, maker = matchmaker,
         generation = st.steps](const caf::error&) {
          steward s{self, ctx, config, board, maker};
          if (s.awaits_group(generation))
            s.search();
        });
  }

  /// True while the step of this generation has no round yet.
  bool awaits_group(std::uint64_t generation) const {
    const auto& st = state();
    return st.current && st.steps == generation && !st.current->round;
  }

  void keep_group(const round_plan& plan) const {
    state().current->follows = state().group.last()->id;
    start_round(plan);
  }

  void search() const {
    auto& st = state();
    auto& step = *st.current;
    leave_standing_group();
    auto left = time_left();
    find_group question{step.what.epoch, codecs(), {}, left, step.what.expected_peers};
    self->request(matchmaker, left + 2s, question)
      .then(
        [self = self, ctx = ctx, config = config, board = switchboard, maker = matchmaker,
         generation = st.steps](const group_formed& formed) {
          steward s{self, ctx, config, board, maker};
          if (s.awaits_group(generation)) {
            self->state.current->matchmaking_seconds +=
              seconds_of(s.now() - self->state.current->attempt_began);
            s.start_round(formed.plan);
          }
        },
        [self = self, ctx = ctx, config = config, board = switchboard, maker = matchmaker,
         generation = st.steps](const caf::error& why) {
          steward s{self, ctx, config, board, maker};
          if (!self->state.current || self->state.steps != generation)
            return;
          auto& step = *self->state.current;
          step.matchmaking_seconds += seconds_of(s.now() - step.attempt_began);
          round_report report;
          report.why = from_caf(why);
          s.deliver(std::move(report));
        });
  }

  void start_round(const round_plan& plan) const {
    auto& st = state();
    auto& step = *st.current;
    auto mine = std::find_if(plan.members.begin(), plan.members.end(),
                             [this](const round_member& m) { return m.peer.id == ctx.record.id; });
    if (mine == plan.members.end() || plan.elements != step.what.values->size()) {
      round_report report;
      report.why = {ec::internal, "matchmaking made a plan that does not fit"};
      return deliver(std::move(report));
    }
    step.plan = plan;
    auto settings = config.round;
    settings.deadline = std::min(settings.deadline, std::max(time_left(), milliseconds{1}));
    round_order order{plan, static_cast<std::size_t>(mine - plan.members.begin()), step.what.values,
                      step.what.weight};
    ctx.log->debug("round {} begins with {} members", short_name(plan.id), plan.members.size());
    step.round =
      self->spawn<caf::monitored>(allreduce_round, ctx, settings, std::move(order), st.pool,
                                  switchboard, caf::actor_cast<round_listener_actor>(self));
    auto waiting = st.parked.find(plan.id);
    if (waiting == st.parked.end())
      return;
    auto events = std::move(waiting->second.events);
    st.parked_events -= events.size();
    st.parked.erase(waiting);
    for (auto& event : events)
      self->send(step.round, std::move(event));
  }

  void on_finished(const round_finished& msg) const {
    auto& st = state();
    st.finished[msg.report.round] = {msg.standing, now()};
    if (!st.current || !st.current->plan || st.current->plan->id != msg.report.round)
      return;
    auto& step = *st.current;
    if (msg.all_took_part)
      st.group.establish(*step.plan);
    else
      st.group.dissolve();
    count(msg.report);
    bool failed = msg.report.outcome == round_outcome::failed;
    // A standing group that did not come together cost next to nothing: that is no failure yet.
    if (failed && (step.follows.is_zero() || msg.report.why.code != ec::not_looking))
      ++step.failures;
    if (failed && may_retry(msg.report.why.code) && step.failures <= config.retries_max
        && time_left() > 0ms) {
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
    auto step = std::move(*state().current);
    state().current.reset();
    report.matchmaking_seconds = step.matchmaking_seconds;
    step.promise.deliver(std::move(report));
  }

  /// The round ended without a report.
  void on_round_down(const caf::error& why) const {
    round_report report;
    report.round = state().current->plan->id;
    report.why = from_caf(why);
    state().group.dissolve();
    count(report);
    deliver(std::move(report));
  }

  // -- the standing group ------------------------------------------------------------------------

  void leave_standing_group() const {
    auto& group = state().group;
    if (!group.last())
      return;
    auto plan = *group.last();
    group.dissolve();
    for (std::uint32_t i = 0; i < plan.members.size(); ++i)
      if (plan.members[i].peer.id == ctx.record.id)
        for (const auto& member : plan.members)
          if (member.peer.id != ctx.record.id)
            self->send(
              switchboard,
              tell_peer{member.peer, wire::round_suspect{plan.id, 0, i, ec::not_looking}, {}});
  }

  static bool is_member(const peer_id& peer, const round_plan& plan) {
    return std::any_of(plan.members.begin(), plan.members.end(),
                       [&](const round_member& m) { return m.peer.id == peer; });
  }

  /// True if the event said that its sender leaves the standing group, or never was in the group
  /// that its leader made.
  bool somebody_left(const inbound_event& msg) const {
    auto& st = state();
    const auto* word = std::get_if<wire::round_suspect>(&msg.what);
    if (word == nullptr || word->reason != ec::not_looking)
      return false;
    if (st.group.last() && st.group.last()->id == word->round && st.group.contains(msg.from.id))
      st.group.dissolve();
    if (st.current && st.current->round
        && (st.current->follows == word->round || st.current->plan->id == word->round)
        && is_member(msg.from.id, *st.current->plan))
      self->send(st.current->round,
                 cancel_round{{ec::not_looking, "a member looks for another group"}});
    return true;
  }

  // -- what peers say ----------------------------------------------------------------------------

  void route(const inbound_event& msg) const {
    auto& st = state();
    auto id = std::visit(round_of{}, msg.what);
    if (somebody_left(msg))
      return;
    if (st.current && st.current->round && st.current->plan->id == id) {
      self->send(st.current->round, msg);
      return;
    }
    const auto* takeover = std::get_if<wire::round_takeover>(&msg.what);
    if (auto old = st.finished.find(id); old != st.finished.end()) {
      msg.release();
      if (takeover != nullptr)
        answer(msg.from, old->second.standing, takeover->number);
      return;
    }
    if (takeover != nullptr) // a round that we never heard of, or forgot
      answer(msg.from, wire::round_standing{id, 0, false, {}, false, false}, takeover->number);
    else
      park(id, msg);
  }

  void answer(const peer_record& to, wire::round_standing standing, std::uint32_t number) const {
    if (standing.committed)
      standing.promised = number;
    else
      standing.knows_view = false; // it failed here: we neither hold nor promise anything
    self->send(switchboard, tell_peer{to, standing, {}});
  }

  void park(const round_id& id, const inbound_event& msg) const {
    auto& st = state();
    if (st.parked_events >= config.parked_events_max) {
      ctx.metrics->count_refused_input(ec::overloaded);
      msg.release();
      return;
    }
    auto& waiting = st.parked[id];
    if (waiting.events.empty())
      waiting.since = now();
    waiting.events.push_back(msg);
    ++st.parked_events;
  }

  void forget() const {
    auto& st = state();
    std::erase_if(st.finished, [&](const auto& entry) {
      return now() - entry.second.at >= config.remembered_for;
    });
    std::erase_if(st.parked, [&](const auto& entry) {
      if (now() - entry.second.since < config.parked_for)
        return false;
      for (const auto& msg : entry.second.events) {
        ctx.metrics->count_refused_input(ec::unknown_round);
        msg.release();
      }
      st.parked_events -= entry.second.events.size();
      return true;
    });
  }
};

} // namespace

averager_impl::behavior_type averager(self_pointer self, node_context ctx, averaging_config config,
                                      switchboard_actor switchboard, matchmaker_actor matchmaker) {
  end_on_exception(self, ctx);
  self->state.pool = vector_pool::make(config.vectors_kept);
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
    [with](const inbound_event& msg) { with([&](const steward& s) { s.route(msg); }); },
    [with](average_vector& msg) { return with([&](const steward& s) { return s.begin(msg); }); },
    [](const peer_connected&) { /* who comes is met by matchmaking */ },
    [self](const peer_disconnected& msg) {
      auto& st = self->state;
      if (st.group.contains(msg.peer))
        st.group.dissolve();
      if (st.current && st.current->round)
        self->send(st.current->round, msg);
    },
    [with](const round_finished& msg) { with([&](const steward& s) { s.on_finished(msg); }); },
    [self, with](forget_old again) {
      with([](const steward& s) { s.forget(); });
      self->delayed_send(self, 1s, again);
    },
  };
}

} // namespace waggle
