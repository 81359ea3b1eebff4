// go_on ─► decide() ─ accumulate ─► micro-step ─► report_progress ─► go_on
//                   ├ average ─► averager ─► complete, shrunk: apply the mean │ failed: apply our own
//                   ├ step_alone ─► apply our own mean gradient
//                   ├ sync ─► state_fetcher ─► load, all or nothing
//                   └ finish ─► donate until stopped

#include "actors/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = trainer_impl::stateful_pointer<trainer_state>;

constexpr auto idle_interval = 50ms;
constexpr auto report_interval = 20ms; // the tracker and its listeners look at each report
constexpr auto status_interval = 250ms;
constexpr auto progress_log_interval = 10s;

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (float v : values)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

struct coach {
  self_pointer self;
  const node_context& ctx;
  const training_config& config;
  const trainer_peers& peers;

  trainer_state& state() const { return self->state; }
  trained_model& model() const { return *self->state.model; }
  steady_time now() const { return self->clock().now(); }

  // -- telling ------------------------------------------------------------------------------------

  const training_status& current_status() const {
    auto& st = state();
    auto& s = st.status;
    if (st.model) {
      s.epoch = model().epoch();
      s.parameters = model().parameters();
      const auto& samples = model().samples();
      s.samples_toward_epoch = samples.pending;
      s.samples_used = samples.used;
      s.samples_dropped = samples.dropped;
    }
    s.global_epoch = std::max(s.epoch, st.view.global_epoch);
    s.target_batch_size = config.target_batch_size;
    s.loss = st.losses.smoothed();
    s.first_loss = st.losses.of_first_epoch();
    return s;
  }

  void publish(bool at_once) const {
    auto& st = state();
    if (!at_once && now() - st.reported < status_interval)
      return;
    st.reported = now();
    const auto& s = current_status();
    ctx.metrics->set_epochs(static_cast<double>(s.epoch.value()),
                            static_cast<double>(s.global_epoch.value()));
    ctx.metrics->set_batch_progress(static_cast<double>(st.view.global_samples)
                                    / static_cast<double>(config.target_batch_size));
    ctx.metrics->set_training(s.loss, s.learning_rate, s.gradient_norm);
    self->send(peers.exporter, s);
  }

  void enter(trainer_phase phase) const {
    auto& st = state();
    if (st.status.phase == phase)
      return;
    auto routine = [](trainer_phase p) {
      return p == trainer_phase::training || p == trainer_phase::averaging;
    };
    auto level = routine(st.status.phase) && routine(phase) ? spdlog::level::debug // twice an epoch
                                                            : spdlog::level::info;
    ctx.metrics->count_training_time(activity(st.status.phase), seconds_of(now() - st.phase_began));
    st.phase_began = now();
    st.status.phase = phase;
    auto name = to_string(phase);
    ctx.metrics->set_peer_state(
      phase == trainer_phase::finished || phase == trainer_phase::stopped ? "paused" : name);
    ctx.log->log(level, "trainer is {} at epoch {}", name, current_status().epoch.value());
    publish(true);
  }

  void log_progress() const {
    auto& st = state();
    if (now() - st.progress_logged < progress_log_interval)
      return;
    st.progress_logged = now();
    const auto& s = current_status();
    ctx.log->info("epoch {}: loss {:.3f}, {:.0f} samples/s here, last round: {}", s.epoch.value(),
                  s.loss, s.samples_per_second, s.last_outcome);
  }

  static std::string_view activity(trainer_phase phase) {
    switch (phase) {
      case trainer_phase::training:
        return "compute";
      case trainer_phase::averaging:
        return "communicate";
      case trainer_phase::syncing:
        return "sync";
      case trainer_phase::starting:
      case trainer_phase::joining:
      case trainer_phase::finished:
      case trainer_phase::stopped:
        return "wait";
    }
    return "wait";
  }

  void tell_progress() const {
    state().progress_told = now();
    self->send(peers.tracker,
               report_progress{model().epoch(), model().samples().pending, model().parameters()});
  }

  void continue_soon(milliseconds pause = 0ms) const {
    auto turn = ++state().turn;
    if (pause > 0ms)
      self->delayed_send(self, pause, go_on{turn});
    else
      self->send(self, go_on{turn});
  }

  // -- the beginning -----------------------------------------------------------------------------

  /// False: there is no learner, and the reason is the end of this actor.
  bool prepare(const learner_factory& make_learner) const {
    auto made = make_learner();
    if (!made) {
      ctx.log->error("cannot make the model: {}", to_string(made.error()));
      self->quit(to_caf(made.error()));
      return false;
    }
    state().model.emplace(std::move(*made));
    resume_from_checkpoint();
    return true;
  }

  void resume_from_checkpoint() const {
    auto& st = state();
    if (!st.checkpoints)
      return;
    auto search = st.checkpoints->load_newest(model().schema());
    if (!search) {
      ctx.log->warn("cannot look for checkpoints: {}", to_string(search.error()));
      return;
    }
    for (const auto& bad : search->skipped)
      ctx.log->warn("skipped a checkpoint: {}", to_string(bad));
    if (!search->newest)
      return;
    auto loaded = model().load(as_byte_span(search->newest->image));
    if (loaded)
      ctx.log->info("resumed from the checkpoint of epoch {}", model().epoch().value());
    else
      ctx.log->warn("the checkpoint does not fit this model, starting anew: {}",
                    to_string(loaded.error()));
  }

  bool joined() const {
    const auto& st = state();
    bool others = st.view.num_peers > (st.view.peers.empty() ? 0U : own_entries());
    return others || now() - st.phase_began >= config.join_timeout;
  }

  std::uint32_t own_entries() const {
    std::uint32_t n = 0;
    for (const auto& peer : state().view.peers)
      n += peer.who.id == ctx.record.id ? 1 : 0;
    return n;
  }

  // -- one turn ----------------------------------------------------------------------------------

  void turn() const {
    auto& st = state();
    if (st.stopping || !st.started)
      return;
    if (st.status.phase == trainer_phase::joining) {
      if (!joined())
        return continue_soon(idle_interval);
      tell_progress();
    }
    training_situation situation{
      model().epoch(),         config.max_epochs, st.view.global_epoch, parameters_differ(),
      !st.view.donors.empty(), target_reached(),  peers_at_epoch(),     model().samples().pending};
    auto next = decide(situation);
    if (next != next_step::sync && now() < st.left_out_until)
      return continue_soon(idle_interval); // the run is about to tell us that it moved on
    switch (next) {
      case next_step::accumulate:
        return accumulate();
      case next_step::average:
        return average();
      case next_step::step_alone:
        return step_alone();
      case next_step::sync:
        return sync();
      case next_step::finish:
        return finish();
    }
  }

  /// The tracker's view lags by a message: what we have ourselves counts at once.
  bool target_reached() const {
    const auto& view = state().view;
    if (view.global_epoch > model().epoch())
      return false;
    std::uint64_t others = 0;
    for (const auto& peer : view.peers)
      if (peer.who.id != ctx.record.id && peer.epoch == model().epoch())
        others += peer.samples;
    return others + model().samples().pending >= config.target_batch_size
           || (view.ready && own_view_is_current());
  }

  /// How many to expect in a round, ourselves included. A peer one epoch behind is just finishing
  /// its step, as we did a moment ago; one that is further behind has to take a state first.
  std::uint32_t peers_at_epoch() const {
    std::uint32_t n = 1;
    for (const auto& peer : state().view.peers)
      n += peer.who.id != ctx.record.id && peer.epoch.next() >= model().epoch() ? 1 : 0;
    return n;
  }

  bool own_view_is_current() const {
    for (const auto& peer : state().view.peers)
      if (peer.who.id == ctx.record.id)
        return peer.epoch == model().epoch() && peer.parameters == model().parameters();
    return false;
  }

  /// A verdict on the parameters that we had before the last step says nothing about these.
  bool parameters_differ() const { return state().view.parameters_differ && own_view_is_current(); }

  void accumulate() const {
    auto& st = state();
    enter(trainer_phase::training);
    auto began = now();
    auto step = model().accumulate();
    auto seconds = seconds_of(now() - began);
    ctx.metrics->observe_step("forward_backward", seconds);
    ++st.status.steps;
    if (step.finite) {
      st.losses.note(step.loss);
    } else {
      ctx.metrics->count_nonfinite("gradient");
      count_dropped(step.samples);
    }
    if (seconds > 0)
      st.status.samples_per_second =
        0.9 * st.status.samples_per_second + 0.1 * static_cast<double>(step.samples) / seconds;
    if (now() - st.progress_told >= report_interval || target_reached())
      tell_progress();
    publish(false);
    continue_soon(config.step_interval);
  }

  // -- the end of an epoch -----------------------------------------------------------------------

  void average() const {
    auto& st = state();
    enter(trainer_phase::averaging);
    auto own = mean_gradient();
    auto turn = ++st.turn;
    average_vector question;
    question.values = own;
    question.weight = static_cast<double>(model().samples().pending);
    question.epoch = model().epoch();
    question.deadline = config.averaging_timeout;
    question.expected_peers = peers_at_epoch();
    question.standing = true;
    self->request(peers.averager, config.averaging_timeout + 5s, std::move(question))
      .then(
        [self = self, ctx = ctx, config = config, peers = peers, own,
         turn](const round_report& report) {
          if (turn == self->state.turn)
            coach{self, ctx, config, peers}.on_round(report, own);
        },
        [self = self, ctx = ctx, config = config, peers = peers, own, turn](const caf::error& why) {
          if (turn != self->state.turn)
            return;
          round_report report;
          report.why = from_caf(why);
          coach{self, ctx, config, peers}.on_round(report, own);
        });
  }

  void on_round(const round_report& report, const std::shared_ptr<const float_vector>& own) const {
    auto& s = state().status;
    round_ended event{"gradients", report};
    event.report.values.reset();
    self->send(peers.exporter, std::move(event));
    s.last_outcome = to_string(report.outcome);
    switch (report.outcome) {
      case round_outcome::complete:
        ++s.rounds_complete;
        break;
      case round_outcome::shrunk:
        ++s.rounds_shrunk;
        break;
      case round_outcome::failed:
        ++s.rounds_failed;
        s.last_outcome += ": " + std::string{to_string(report.why.code)};
        ctx.log->warn("epoch {} was not averaged: {}", model().epoch().value(),
                      to_string(report.why));
        break;
    }
    round_verdict verdict{report.outcome != round_outcome::failed, report.why.code == ec::excluded,
                          state().view.global_epoch > model().epoch(), model().samples().pending};
    switch (decide(verdict)) {
      case epoch_end::apply_mean: {
        const auto& in = report.contributors;
        bool contributed = std::find(in.begin(), in.end(), ctx.record.id) != in.end();
        return step(*report.values, norm_of(*report.values),
                    contributed ? trained_model::own_samples::used
                                : trained_model::own_samples::dropped);
      }
      case epoch_end::apply_own:
        ctx.metrics->count_local_fallback();
        ++s.local_fallbacks;
        return step_with_own(*own);
      case epoch_end::left_out:
        drop_epoch();
        state().left_out_until = now() + config.settle_time;
        tell_progress();
        return continue_soon(idle_interval);
      case epoch_end::accumulate:
        return accumulate();
    }
  }

  /// A snapshot that later micro-steps do not change (INV-6).
  std::shared_ptr<const float_vector> mean_gradient() const {
    auto mean = ctx.vectors->take(model().parameter_count());
    model().mean_gradient(*mean);
    return mean;
  }

  void step_alone() const {
    state().status.last_outcome = "alone";
    step_with_own(*mean_gradient());
  }

  /// Each micro-step was finite, but a sum of them need not be.
  void step_with_own(std::span<const float> gradient) const {
    auto norm = norm_of(gradient);
    if (!std::isfinite(norm)) {
      ctx.metrics->count_nonfinite("gradient");
      ctx.log->warn("the mean gradient of epoch {} is not finite, it is dropped",
                    model().epoch().value());
      drop_epoch();
      tell_progress();
      return continue_soon();
    }
    step(gradient, norm, trained_model::own_samples::used);
  }

  void step(std::span<const float> gradient, double norm, trained_model::own_samples fate) const {
    auto& st = state();
    auto began = now();
    auto lr = config.schedule.at(model().epoch());
    auto counted = model().step(gradient, lr, fate);
    ctx.metrics->observe_step("optimizer", seconds_of(now() - began));
    if (fate == trained_model::own_samples::used)
      ctx.metrics->count_samples("used", static_cast<double>(counted));
    else
      count_dropped(counted);
    st.losses.end_epoch();
    st.status.learning_rate = lr;
    st.status.gradient_norm = norm;
    tell_progress();
    if (config.checkpoint_every != 0 && model().epoch().value() % config.checkpoint_every == 0
        && now() - st.checkpointed >= config.checkpoint_interval)
      save_checkpoint();
    enter(trainer_phase::training);
    publish(true);
    log_progress();
    continue_soon();
  }

  void count_dropped(std::uint64_t samples) const {
    if (samples > 0)
      ctx.metrics->count_samples("dropped", static_cast<double>(samples));
  }
  void drop_epoch() const { count_dropped(model().drop()); }

  void finish() const {
    if (model().samples().pending > 0)
      drop_epoch();
    enter(trainer_phase::finished);
    continue_soon(idle_interval);
  }

  // -- the state ---------------------------------------------------------------------------------

  void sync() const {
    auto& st = state();
    enter(trainer_phase::syncing);
    auto turn = ++st.turn;
    fetch_state question{st.donors.among(st.view.donors),
                         std::max(st.view.global_epoch, model().epoch()), config.sync_timeout};
    auto fetcher = self->spawn(state_fetcher, ctx, config.fetch, peers.switchboard);
    self->request(fetcher, config.sync_timeout + 5s, std::move(question))
      .then(
        [self = self, ctx = ctx, config = config, peers = peers,
         turn](const fetched_state& fetched) {
          if (turn == self->state.turn)
            coach{self, ctx, config, peers}.on_state(fetched);
        },
        [self = self, ctx = ctx, config = config, peers = peers, turn](const caf::error& why) {
          if (turn == self->state.turn)
            coach{self, ctx, config, peers}.on_no_state(from_caf(why));
        });
  }

  void on_state(const fetched_state& fetched) const {
    auto& st = state();
    auto dropped = model().load(fetched.state.view());
    if (!dropped) {
      st.donors.refuse(fetched.donor);
      return on_no_state(dropped.error());
    }
    count_dropped(*dropped);
    st.donors.succeeded();
    ++st.status.state_downloads;
    st.left_out_until = {};
    st.status.last_outcome = "state loaded";
    ctx.log->info("took the state of epoch {} from peer {}; {} samples were dropped",
                  model().epoch().value(), short_name(fetched.donor), *dropped);
    ctx.metrics->count_state_hash_check(model().parameters() == fetched.parameters ? "equal"
                                                                                   : "minority");
    self->send(peers.exporter, state_download_ended{
                                 true, {}, fetched.state.size, seconds_of(now() - st.phase_began)});
    tell_progress();
    enter(trainer_phase::training);
    continue_soon();
  }

  void on_no_state(const failure& why) const {
    ctx.log->warn("could not take the run's state: {}", to_string(why));
    self->send(peers.exporter,
               state_download_ended{false, why, 0, seconds_of(now() - state().phase_began)});
    continue_soon(state().donors.failed()); // the view may name other donors by then
  }

  caf::result<state_snapshot> snapshot() const {
    auto& st = state();
    if (!st.model || st.status.phase == trainer_phase::joining
        || st.status.phase == trainer_phase::syncing)
      return to_caf(ec::not_ready, "this peer has no state of the run yet");
    return state_snapshot{model().epoch(), model().parameters(), model().image()};
  }

  void save_checkpoint() const {
    auto& st = state();
    if (!st.checkpoints || !st.model)
      return;
    auto began = st.checkpointed = now();
    auto saved = model().save(*st.checkpoints);
    auto unix_now = static_cast<double>(to_nanoseconds(ctx.wall->now())) / 1e9;
    ctx.metrics->count_checkpoint(saved ? "ok" : "failed", seconds_of(now() - began), unix_now);
    if (!saved)
      ctx.log->error("could not write a checkpoint: {}", to_string(saved.error()));
  }

  training_status stop() const {
    auto& st = state();
    if (!std::exchange(st.stopping, true)) {
      ++st.turn; // whatever is under way does not count any more
      if (st.model) {
        drop_epoch();
        save_checkpoint();
      }
      enter(trainer_phase::stopped);
    }
    return current_status();
  }
};

} // namespace

trainer_impl::behavior_type trainer(self_pointer self, node_context ctx, training_config config,
                                    learner_factory make_learner, trainer_peers peers) {
  end_on_exception(self, ctx);
  auto& st = self->state;
  st.checkpoints = config.checkpoints;
  st.phase_began = st.reported = st.checkpointed = self->clock().now();
  st.status.target_batch_size = config.target_batch_size;
  auto with = [self, ctx, config, peers](auto&& action) {
    return action(coach{self, ctx, config, peers});
  };
  return {
    [self, with, make_learner](start_training) {
      if (std::exchange(self->state.started, true))
        return;
      with([&](const coach& c) {
        if (!c.prepare(make_learner))
          return;
        c.enter(trainer_phase::joining);
        c.continue_soon();
      });
    },
    [with](stop_training) { return with([](const coach& c) { return c.stop(); }); },
    [with](get_training_status) {
      return with([](const coach& c) -> training_status { return c.current_status(); });
    },
    [with](get_state_snapshot) { return with([](const coach& c) { return c.snapshot(); }); },
    [self](const swarm_progress& msg) { self->state.view = msg; },
    [self, with](const go_on& msg) {
      if (msg.turn == self->state.turn)
        with([](const coach& c) { c.turn(); });
    },
  };
}

} // namespace waggle
