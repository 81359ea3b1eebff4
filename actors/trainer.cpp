// go_on ─► decide() ─ accumulate ─► micro-step ─► report_progress ─► go_on
//                   ├ average ─► averager ─► complete, shrunk: apply the mean │ failed: apply our own
//                   ├ step_alone ─► apply our own mean gradient
//                   ├ sync ─► state_fetcher ─► load, all or nothing
//                   └ finish ─► donate until stopped

#include "actors/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "actors/guard.hpp"
#include "runtime/training/training_state.hpp"

namespace waggle {

namespace {

using self_pointer = trainer_impl::stateful_pointer<trainer_state>;

constexpr auto idle_interval = 50ms;
constexpr auto report_interval = 20ms; // the tracker and its listeners look at each report
constexpr auto status_interval = 250ms;
constexpr auto progress_log_interval = 10s;
constexpr milliseconds sync_pause_min{500};
constexpr milliseconds sync_pause_max{8'000};
constexpr double loss_smoothing = 0.05;

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
  steady_time now() const { return self->clock().now(); }

  // -- telling ------------------------------------------------------------------------------------

  const training_status& current_status() const {
    auto& st = state();
    auto& s = st.status;
    s.epoch = st.epoch;
    s.global_epoch = std::max(st.epoch, st.view.global_epoch);
    s.samples_toward_epoch = st.samples.pending;
    s.samples_used = st.samples.used;
    s.samples_dropped = st.samples.dropped;
    s.target_batch_size = config.target_batch_size;
    s.parameters = st.parameters;
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
    ctx.log->log(level, "trainer is {} at epoch {}", name, st.epoch.value());
    publish(true);
  }

  void log_progress() const {
    auto& st = state();
    if (now() - st.progress_logged < progress_log_interval)
      return;
    st.progress_logged = now();
    ctx.log->info("epoch {}: loss {:.3f}, {:.0f} samples/s here, last round: {}", st.epoch.value(),
                  st.status.loss, st.status.samples_per_second, st.status.last_outcome);
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

  void report() const {
    auto& st = state();
    st.progress_told = now();
    self->send(peers.tracker, report_progress{st.epoch, st.samples.pending, st.parameters});
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
    auto& st = state();
    auto made = make_learner();
    if (!made) {
      ctx.log->error("cannot make the model: {}", to_string(made.error()));
      self->quit(to_caf(made.error()));
      return false;
    }
    st.model = std::move(*made);
    resume_from_checkpoint();
    st.parameters = st.model->parameters_digest();
    return true;
  }

  void resume_from_checkpoint() const {
    auto& st = state();
    if (!st.checkpoints)
      return;
    auto search = st.checkpoints->load_newest(st.model->schema());
    if (!search) {
      ctx.log->warn("cannot look for checkpoints: {}", to_string(search.error()));
      return;
    }
    for (const auto& bad : search->skipped)
      ctx.log->warn("skipped a checkpoint: {}", to_string(bad));
    if (!search->newest)
      return;
    auto loaded = load(as_byte_span(search->newest->image));
    if (loaded)
      ctx.log->info("resumed from the checkpoint of epoch {}", st.epoch.value());
    else
      ctx.log->warn("the checkpoint does not fit this model, starting anew: {}",
                    to_string(loaded.error()));
  }

  /// All or nothing.
  status load(byte_span image) const {
    auto& st = state();
    auto parsed = decode_state(image);
    if (!parsed)
      return parsed.error();
    if (parsed->schema != st.model->schema())
      return failure{ec::schema_mismatch, "the state is of another model or optimizer"};
    if (auto loaded = st.model->load_state(parsed->learner); !loaded)
      return loaded;
    st.model->reset_accumulators();
    count_dropped();
    st.epoch = parsed->epoch;
    st.parameters = st.model->parameters_digest();
    st.snapshot = {};
    return done{};
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
      report();
    }
    training_situation situation{st.epoch,
                                 config.max_epochs,
                                 st.view.global_epoch,
                                 parameters_differ(),
                                 !st.view.donors.empty(),
                                 target_reached(),
                                 peers_at_epoch(),
                                 st.samples.pending};
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
    const auto& st = state();
    if (st.view.global_epoch > st.epoch)
      return false;
    std::uint64_t others = 0;
    for (const auto& peer : st.view.peers)
      if (peer.who.id != ctx.record.id && peer.epoch == st.epoch)
        others += peer.samples;
    return others + st.samples.pending >= config.target_batch_size
           || (st.view.ready && own_view_is_current());
  }

  /// How many to expect in a round, ourselves included. A peer one epoch behind is just finishing
  /// its step, as we did a moment ago; one that is further behind has to take a state first.
  std::uint32_t peers_at_epoch() const {
    std::uint32_t n = 1;
    for (const auto& peer : state().view.peers)
      n += peer.who.id != ctx.record.id && peer.epoch.value() + 1 >= state().epoch.value() ? 1 : 0;
    return n;
  }

  bool own_view_is_current() const {
    for (const auto& peer : state().view.peers)
      if (peer.who.id == ctx.record.id)
        return peer.epoch == state().epoch && peer.parameters == state().parameters;
    return false;
  }

  /// A verdict on the parameters that we had before the last step says nothing about these.
  bool parameters_differ() const { return state().view.parameters_differ && own_view_is_current(); }

  void accumulate() const {
    auto& st = state();
    enter(trainer_phase::training);
    auto began = now();
    auto step = st.model->accumulate();
    auto seconds = seconds_of(now() - began);
    ctx.metrics->observe_step("forward_backward", seconds);
    ++st.status.steps;
    if (!step.finite) {
      ctx.metrics->count_nonfinite("gradient");
      st.samples.dropped += step.samples;
      ctx.metrics->count_samples("dropped", static_cast<double>(step.samples));
    } else {
      st.samples.accumulate(step.samples);
      note_loss(step.loss);
    }
    if (seconds > 0)
      st.status.samples_per_second =
        0.9 * st.status.samples_per_second + 0.1 * static_cast<double>(step.samples) / seconds;
    if (now() - st.progress_told >= report_interval || target_reached())
      report();
    publish(false);
    continue_soon(config.step_interval);
  }

  void note_loss(double loss) const {
    auto& st = state();
    st.status.loss =
      std::isnan(st.status.loss) ? loss : st.status.loss + loss_smoothing * (loss - st.status.loss);
    if (st.first_loss_steps != std::numeric_limits<std::uint64_t>::max()) {
      st.first_loss_sum += loss;
      ++st.first_loss_steps;
    }
  }

  // -- the end of an epoch -----------------------------------------------------------------------

  void average() const {
    auto& st = state();
    enter(trainer_phase::averaging);
    auto own = mean_gradient();
    auto turn = ++st.turn;
    average_vector question;
    question.values = own;
    question.weight = static_cast<double>(st.samples.pending);
    question.epoch = st.epoch;
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
    auto& st = state();
    auto& s = st.status;
    s.last_outcome = to_string(report.outcome);
    round_ended event{"gradients", report};
    event.report.values.reset();
    self->send(peers.exporter, std::move(event));
    switch (report.outcome) {
      case round_outcome::complete:
        ++s.rounds_complete;
        break;
      case round_outcome::shrunk:
        ++s.rounds_shrunk;
        break;
      case round_outcome::failed: {
        ++s.rounds_failed;
        s.last_outcome += ": " + std::string{to_string(report.why.code)};
        return on_round_failed(report.why, own);
      }
    }
    bool contributed =
      std::find(report.contributors.begin(), report.contributors.end(), ctx.record.id)
      != report.contributors.end();
    if (contributed)
      count_used();
    else
      count_dropped();
    step(*report.values, norm_of(*report.values));
  }

  void on_round_failed(const failure& why, const std::shared_ptr<const float_vector>& own) const {
    auto& st = state();
    ctx.log->warn("epoch {} was not averaged: {}", st.epoch.value(), to_string(why));
    if (why.code == ec::excluded || st.view.global_epoch > st.epoch) {
      // The others decided without us: their state is the run's, ours is not.
      drop_epoch();
      st.left_out_until = now() + config.settle_time;
      report();
      return continue_soon(idle_interval);
    }
    if (st.samples.pending == 0) // we only tagged along: there is no gradient to fall back on
      return accumulate();
    ctx.metrics->count_local_fallback();
    ++st.status.local_fallbacks;
    step_with_own(*own);
  }

  /// A snapshot that later micro-steps do not change (INV-6).
  std::shared_ptr<const float_vector> mean_gradient() const {
    auto& model = *state().model;
    auto mean = ctx.vectors->take(model.parameter_count());
    model.mean_gradient(*mean);
    return mean;
  }

  void step_alone() const {
    auto& st = state();
    st.status.last_outcome = "alone";
    step_with_own(*mean_gradient());
  }

  /// Each micro-step was finite, but a sum of them need not be.
  void step_with_own(std::span<const float> gradient) const {
    auto norm = norm_of(gradient);
    if (!std::isfinite(norm)) {
      ctx.metrics->count_nonfinite("gradient");
      ctx.log->warn("the mean gradient of epoch {} is not finite, it is dropped",
                    state().epoch.value());
      drop_epoch();
      report();
      return continue_soon();
    }
    count_used();
    step(gradient, norm);
  }

  void step(std::span<const float> gradient, double norm) const {
    auto& st = state();
    auto began = now();
    auto lr = config.schedule.at(st.epoch);
    st.model->apply(gradient, lr);
    st.model->reset_accumulators();
    ctx.metrics->observe_step("optimizer", seconds_of(now() - began));
    st.status.learning_rate = lr;
    st.status.gradient_norm = norm;
    if (st.first_loss_steps > 0 && std::isnan(st.status.first_loss)) {
      st.status.first_loss = st.first_loss_sum / static_cast<double>(st.first_loss_steps);
      st.first_loss_steps = std::numeric_limits<std::uint64_t>::max();
    }
    st.epoch = st.epoch.next();
    st.parameters = st.model->parameters_digest();
    st.snapshot = {};
    report();
    if (config.checkpoint_every != 0 && st.epoch.value() % config.checkpoint_every == 0
        && now() - st.checkpointed >= config.checkpoint_interval)
      save_checkpoint();
    enter(trainer_phase::training);
    publish(true);
    log_progress();
    continue_soon();
  }

  void count_used() const {
    ctx.metrics->count_samples("used", static_cast<double>(state().samples.use()));
  }
  void count_dropped() const {
    if (auto n = state().samples.drop(); n > 0)
      ctx.metrics->count_samples("dropped", static_cast<double>(n));
  }
  void drop_epoch() const {
    count_dropped();
    state().model->reset_accumulators();
  }

  void finish() const {
    if (state().samples.pending > 0)
      drop_epoch();
    enter(trainer_phase::finished);
    continue_soon(idle_interval);
  }

  // -- the state ---------------------------------------------------------------------------------

  void sync() const {
    auto& st = state();
    enter(trainer_phase::syncing);
    auto turn = ++st.turn;
    auto donors = st.view.donors;
    std::erase_if(donors, [&](const peer_record& d) { return st.bad_donors.contains(d.id); });
    if (donors.empty()) { // a second chance is better than none
      st.bad_donors.clear();
      donors = st.view.donors;
    }
    fetch_state question{std::move(donors), std::max(st.view.global_epoch, st.epoch),
                         config.sync_timeout};
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
    auto before = st.samples.pending;
    auto parsed = decode_state(fetched.state.view());
    if (parsed && parsed->epoch < st.epoch) { // INV-1
      st.bad_donors.insert(fetched.donor);
      return on_no_state({ec::epoch_mismatch, "the state is older than ours"});
    }
    if (auto loaded = load(fetched.state.view()); !loaded) {
      st.bad_donors.insert(fetched.donor);
      return on_no_state(loaded.error());
    }
    st.bad_donors.clear();
    st.sync_pause = 0ms;
    ++st.status.state_downloads;
    st.left_out_until = {};
    st.status.last_outcome = "state loaded";
    ctx.log->info("took the state of epoch {} from peer {}; {} samples were dropped",
                  st.epoch.value(), short_name(fetched.donor), before);
    ctx.metrics->count_state_hash_check(st.parameters == fetched.parameters ? "equal" : "minority");
    self->send(peers.exporter, state_download_ended{
                                 true, {}, fetched.state.size, seconds_of(now() - st.phase_began)});
    report();
    enter(trainer_phase::training);
    continue_soon();
  }

  void on_no_state(const failure& why) const {
    ctx.log->warn("could not take the run's state: {}", to_string(why));
    self->send(peers.exporter,
               state_download_ended{false, why, 0, seconds_of(now() - state().phase_began)});
    auto& pause = state().sync_pause;
    pause = std::clamp(2 * pause, sync_pause_min, sync_pause_max);
    continue_soon(pause); // the view may name other donors by then
  }

  caf::result<state_snapshot> snapshot() const {
    auto& st = state();
    if (!st.model || st.status.phase == trainer_phase::joining
        || st.status.phase == trainer_phase::syncing)
      return to_caf(ec::not_ready, "this peer has no state of the run yet");
    if (st.snapshot.state.empty()) {
      auto bytes = st.model->save_state();
      st.snapshot = {st.epoch, st.parameters,
                     encode_state({st.epoch, st.model->schema(), st.parameters, bytes.view()})};
    }
    return st.snapshot;
  }

  void save_checkpoint() const {
    auto& st = state();
    if (!st.checkpoints || !st.model)
      return;
    auto began = st.checkpointed = now();
    auto bytes = st.model->save_state();
    auto saved = st.checkpoints->save({st.epoch, st.model->schema(), st.parameters, bytes.view()});
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
  st.status.loss = st.status.first_loss = std::numeric_limits<double>::quiet_NaN();
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
