// progress, calls, results, passes, links, time ─► react()
//   outside: membership ─► enter_group │ found_group
//   member:  not in step ─► state_fetcher ─► load_image, then the missed updates
//            target reached, or called ─► take the gradient ─► average_in_group ─► apply_update
//            else ─► run_pass
//   stop ─► keep, or drop and count ─► (the running pass ends) ─► save_checkpoint ─► answers
//   model_ready ─► the round is run again; the accumulated gradient is in the model

#include "actors/training/trainer.hpp"

#include "actors/guard.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/training/low_rank.hpp"
#include "runtime/training/parameter_sample.hpp"
#include "runtime/training/resumable_learner.hpp"

namespace waggle {

namespace {

constexpr auto look_interval = 20ms;
constexpr milliseconds model_timeout = 1h;    // a large model, and a checkpoint from a slow disk
constexpr milliseconds residual_timeout = 5s; // an actor of this process copies a vector

training_config with_settings(training_config config) {
  auto numbers = strategy_numbers(config.strategy);
  WAGGLE_CHECK(numbers.ok(), config.strategy);
  config.how.target_batch = config.target_batch_size;
  config.how.numbers = *numbers;
  return config;
}

run_health::settings health_of(const training_config& config, const strategy& how) {
  bool by_samples = how.averages.due.counts == lane_clock::unit::swarm_samples;
  return {seconds_of(config.averaging_timeout), by_samples ? config.target_batch_size : 0,
          how.schedule.epochs_per_round, config.group_size_max, config.many_groups};
}

} // namespace

trainer::trainer(caf::actor_config& cfg, node_context ctx, training_config config,
                 worker_factory worker, trainer_peers peers)
  : trainer_base(cfg), ctx_(std::move(ctx)), config_(with_settings(std::move(config))),
    row_(*find_strategy(config_.strategy)), strategy_(row_.make(config_.how)),
    make_worker_(std::move(worker)), peers_(std::move(peers)),
    random_(ctx_.randomness("trainer")), seen_{ctx_.record.id}, membership_(seen_, config_),
    at_(config_.missed_bytes_max, exact() ? 0 : config_.epoch_difference_max, config_.many_groups),
    claims_(config_.target_batch_size), barrier_(config_.averaging_timeout),
    vote_(not_finite_sample()), health_(health_of(config_, strategy_)) {
  WAGGLE_CHECK(!config_.many_groups || !exact(), config_.strategy);
  end_on_exception(this, ctx_);
}

void trainer::on_exit() {
  if (worker_)
    send_exit(worker_, caf::exit_reason::user_shutdown);
  stop_request(this, sync_, request_);
  worker_ = nullptr;
  passes_ = nullptr;
  peers_ = {};
  stop_.answers.clear();
  awaited_states_.clear();
}

trainer::behavior_type trainer::make_behavior() {
  reports_.began = reports_.to_exporter = checkpoint_.begun = now();
  count_time();
  return {
    [this](start_training) { start(); },
    [this](pause_training) {
      membership_.pause();
      wait_for({});
      react();
      return current_status();
    },
    [this](resume_training) {
      membership_.resume(now());
      react();
      return current_status();
    },
    [this](stop_training) { return stop(); },
    [this](get_training_status) -> training_status { return current_status(); },
    [this](const get_state_snapshot& msg) { return snapshot(msg); },
    [this](const swarm_progress& msg) {
      seen_.progress = msg;
      if (membership_.is_member() && !round_runs() && claims_are_due())
        for (const auto& peer : msg.peers)
          if (counts_here(peer))
            claims_.observe(peer.who.id, peer.samples);
      if (auto why = membership_.observe_epochs(facts()))
        disbelieve(*why);
      else
        show_doubts();
      react();
    },
    [this](const group_view& msg) {
      on_group(msg);
      react();
    },
    [this](const round_called& msg) {
      if (membership_.is_member() && msg.epoch == at_.epoch())
        flight_.call();
      react();
    },
    [this](const dht_status& msg) {
      seen_.addresses_known = msg.addresses_known;
      react();
    },
    [this](const peer_connected& msg) {
      seen_.connected.insert(msg.peer.id);
      membership_.on_connected(msg.peer.id);
      react();
    },
    [this](const peer_disconnected& msg) {
      seen_.connected.erase(msg.peer);
      react();
    },
    [this](const check_swarm& msg) {
      if (msg.again)
        delayed_send(this, look_interval, msg);
      else
        pass_.planned = false;
      if (pass_.is_late(now()))
        pass_.go_on();
      react();
    },
    [this](gradient_offered) { on_offered(); },
    [this](const pass_done& msg) { on_pass(msg); },
    [this](const update_applied& msg) {
      pending_.applied();
      note_ledger();
      if (buffers_ && model_->accumulated_samples() == 0)
        pending_.forget_applied(); // the next pass finds them in the buffers
      note_plateau(msg.plateau, msg.epoch);
      vote_.hold(msg.epoch, msg.parameters);
      if (pending_.waiting() == 0)
        report_own_progress();
      react();
    },
    [this](const image_loaded& msg) { on_loaded(msg); },
    [this](const model_evaluated& msg) {
      status_.eval_epoch = msg.epoch;
      status_.eval_loss = msg.found.loss;
      status_.eval_accuracy = msg.found.accuracy;
      publish(true);
    },
  };
}

// -- lifecycle ------------------------------------------------------------------------------------

void trainer::start() {
  if (worker_)
    return;
  worker_ = make_worker_(caf::actor_cast<model_listener_actor>(this));
  link_to(worker_);
  request(worker_, model_timeout, make_model{})
    .then([this](const model_ready& ready) { on_model(ready); },
          [this](const caf::error& why) { quit(why); });
}

void trainer::on_model(const model_ready& ready) {
  model_ = ready.model;
  note_ledger();
  passes_ = ready.passes;
  vote_.hold(ready.epoch, ready.parameters);
  at_.begin(ready.past, ready.epoch);
  membership_.merged(ready.epoch);
  epoch_.began = now();
  membership_.begin(now());
  auto averaged = averaged_tensors::of(model_->tensors(), averages());
  if (averaged && steps_locally() && !model_->steps_locally())
    averaged = failure{ec::bad_config, "this model cannot step locally, as --strategy "
                                         + config_.strategy + " does"};
  if (!averaged) {
    ctx_.log->error("training cannot begin: {}", to_string(averaged.error()));
    return quit(to_caf(averaged.error()));
  }
  averaged_ = *averaged;
  if (!averages_parameters() && model_->tensors().buffer_count() > 0)
    buffers_ = averaged_tensors::buffers_of(model_->tensors());
  if (!config_.notice.empty())
    ctx_.log->warn("{}", config_.notice);
  take_over(*ready.kept);
  begin_counting();
  std::shared_ptr<two_round_coding> coding;
  if (const auto& how = averages().coding; how.rank > 0) {
    coding = low_rank::make(model_->tensors(), how, ctx_.run_id);
    if (!coding)
      ctx_.log->warn("no tensor of this model is large enough for --low-rank {}", how.rank);
  }
  send(peers_.averager, describe_vector{averaged_->value_count(), averaged_->infos(), coding,
                                        ready.kept->residual, ready.past.branch});
  report_own_progress();
  delayed_send(this, look_interval, check_swarm{true});
  react();
}

/// Decides, on everything that is known now, what can be begun, and begins it.
void trainer::react() {
  if (!model_ || stop_.begun)
    return count_time();
  if (follow_membership()) {
    if (differs_from_most()) {
      distrust_own_state("our parameters differ from those of most peers");
    } else {
      if (membership_.is_outdated(facts()))
        replace_outdated_state();
      fetch_if_needed();
      give_awaited();
      carry_out();
    }
  }
  show_phase();
  count_time();
  publish(false);
}

bool trainer::done() const {
  return (config_.max_epochs != 0 && at_.epoch().value() >= config_.max_epochs)
         || (config_.max_passes != 0 && counts_passes() && pending_.waiting() == 0
             && status_.passes.back().pass > config_.max_passes);
}

/// The samples of an unfinished epoch, from the checkpoint from which the model resumed.
void trainer::take_over(const own_progress& kept) {
  if (steps_locally())
    flight_.resume({kept.local_samples, kept.local_passes}, kept.uncounted_steps);
  // They are of no use to another strategy, or after the last epoch.
  if (averages_parameters() || config_.auxiliary || done())
    return drop(model_->drop_gradient() + kept.pending_samples, "stopped");
  if (!kept.pending)
    return drop(kept.pending_samples, "stopped");
  contribution given;
  given.epoch = at_.epoch();
  given.own = kept.pending;
  given.samples = kept.pending_samples;
  given.weight = static_cast<double>(given.samples);
  given.from_state = true;
  given.resumed = true;
  given.position = kept.pending_position;
  if (row_.on_boundary) // the state is from before this round, whose overlap follows from it
    strategy_ =
      row_.on_boundary(std::move(strategy_), config_.how, {model_->strategy_state(), false});
  flight_.hold(std::move(given),
               status_.steps); // carry_out sends it once we are in a group of this epoch
}

void trainer::begin_stop() {
  if (std::exchange(stop_.begun, true))
    return;
  send(peers_.averager, quit_group{});
  flight_.ignore_answer(); // to the round that it cancels
  if (model_)
    keep_unfinished();
  show_phase();
}

/// Ends this peer, with a checkpoint, because it cannot train any more.
void trainer::end_because(const failure& why) {
  if (stop_.why.code != ec::none)
    return;
  stop_.why = why;
  log_about about{{.epoch = at_.epoch(), .reason = why.code}};
  ctx_.log->error("this peer stops training: {}", why.detail);
  begin_stop();
  save_and_answer();
}

caf::result<training_status> trainer::stop() {
  begin_stop();
  auto promise = make_response_promise<training_status>();
  if (!worker_ || !model_) {
    promise.deliver(current_status());
    return promise;
  }
  stop_.answers.push_back(promise);
  if (!pass_.runs || !saves_between_passes()) // otherwise see on_pass
    save_and_answer();
  return promise;
}

/// Prepares the last checkpoint: its state, and the samples that are in no state yet. They are kept
/// if this peer's own state is the one to which they belong; otherwise they are dropped.
void trainer::keep_unfinished() {
  stop_.keeps = config_.checkpoints && !averages_parameters() && !config_.auxiliary && at_.in_step()
                && !loads() && !(pass_.runs && pass_.outdated) && model_->resumable() != nullptr
                && model_->resumable()->keeps_gradient();
  const auto* given = flight_.given();
  if (stop_.keeps && awaits_merge() && given != nullptr)
    // Nobody else has this update. Applied now, it would be in the rest of the epoch's gradients,
    // which it would not be without the stop.
    flight_.hold_again();
  else
    merge();
  if (averages_parameters()) // the state has the local steps of this epoch
    flight_.count_again();
  stop_.keeps = stop_.keeps && at_.in_step();
  if (!stop_.keeps)
    drop_accumulated("stopped");
  given = flight_.given();
  if (given != nullptr && (!stop_.keeps || !given->from_state || given->samples == 0))
    drop_contribution("stopped");
}

void trainer::save_and_answer() {
  request(peers_.averager, residual_timeout, get_residual{})
    .then([this](const group_residual& left) { save_and_answer(left); },
          [this](const caf::error& why) {
            ctx_.log->warn("the errors of the codecs are not kept: {}", to_string(from_caf(why)));
            save_and_answer(group_residual{});
          });
}

void trainer::save_and_answer(const group_residual& left) {
  auto last = std::make_shared<own_progress>();
  if (left.history == current_status().past.branch)
    last->residual = left.values;
  if (steps_locally()) {
    last->local_samples = flight_.counts().samples;
    last->local_passes = flight_.counts().passes;
    last->uncounted_steps = flight_.uncounted_steps();
  }
  if (const auto* given = flight_.given()) {
    last->pending = given->own;
    last->pending_samples = given->samples;
    last->pending_position = given->position;
  }
  auto answer = [this](bool kept) {
    if (stop_.keeps && !kept) {
      drop_accumulated("stopped");
      drop_contribution("stopped");
    }
    stop_.keeps = stop_.keeps && kept;
    if (auto samples = current_status().samples_toward_epoch; stop_.keeps && samples > 0)
      ctx_.log->info("{} samples of the unfinished epoch are kept for the next start", samples);
    for (auto& promise : std::exchange(stop_.answers, {}))
      promise.deliver(current_status());
    if (stop_.why.code != ec::none)
      quit(to_caf(stop_.why));
  };
  request(worker_, config_.sync_timeout, save_checkpoint{std::move(last)})
    .then([answer](const state_snapshot& made) { answer(made.kept); },
          [this, answer](const caf::error& why) {
            if (config_.checkpoints)
              ctx_.log->warn("no checkpoint was made at the stop: {}", to_string(from_caf(why)));
            answer(false);
          });
}

// -- samples --------------------------------------------------------------------------------------

/// Each sample is used in exactly one update, or dropped (INV-2).
void trainer::use(std::uint64_t samples) {
  line_.samples += samples;
  status_.samples_used += samples;
  if (samples > 0)
    ctx_.metrics->count_samples("used", static_cast<double>(samples));
}

void trainer::drop(std::uint64_t samples, std::string_view reason) {
  if (samples == 0)
    return;
  status_.samples_dropped += samples;
  ctx_.metrics->count_samples("dropped", static_cast<double>(samples));
  ctx_.metrics->count_discarded(reason, static_cast<double>(samples));
}

void trainer::drop_accumulated(std::string_view reason) {
  if (!averages_parameters()) // otherwise the worker is about to step with it
    drop(model_->drop_gradient(), reason);
}

/// Drops our contribution to a round that ended without us.
void trainer::drop_contribution(std::string_view reason) {
  if (flight_.at() != flight::phase::idle)
    settle(false, reason);
}

/// The samples of our contribution, whose round is over. Progress that is in no update stays in the
/// model, and counts toward the next one.
void trainer::settle(bool counted, std::string_view why_dropped) {
  bool back = !counted && flight_.in_flight() > 0 && model_->take_back() > 0;
  auto samples = flight_.settle();
  if (counted)
    use(samples);
  else if (!back)
    drop(samples, why_dropped);
  else if (why_dropped == "not_finite" || why_dropped == "stopped")
    drop_accumulated(why_dropped);
}

} // namespace waggle
