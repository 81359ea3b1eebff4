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

namespace waggle {

namespace {

constexpr auto look_interval = 20ms;
constexpr milliseconds model_timeout = 1h; // a large model, and a checkpoint from a slow disk

training_config with_settings(training_config config) {
  config.how.target_batch = config.target_batch_size;
  config.how.numbers = config.strategy.numbers();
  return config;
}

training_report::options report_of(const training_config& config, const strategy& how) {
  bool by_samples = how.averages.due.counts == lane_clock::unit::swarm_samples;
  return {config.target_batch_size,
          config.max_epochs,
          config.notice,
          {seconds_of(config.averaging_timeout), by_samples ? config.target_batch_size : 0,
           how.schedule.epochs_per_round, config.group_size_max, config.many_groups}};
}

} // namespace

trainer::trainer(caf::actor_config& cfg, node_context ctx, training_config config,
                 worker_factory worker, trainer_peers peers)
  : trainer_base(cfg), ctx_(std::move(ctx)), config_(with_settings(std::move(config))),
    row_(*config_.strategy), strategy_(config_.strategy.make(config_.how)),
    make_worker_(std::move(worker)), peers_(std::move(peers)), random_(ctx_.randomness("trainer")),
    vector_(strategy_.averages, config_.averaging_alpha, ctx_.vectors),
    seen_{.self = ctx_.record.id, .known = evidence{ctx_.listed()}}, membership_(seen_, config_),
    at_(config_.missed_bytes_max, exact() ? 0 : config_.epoch_difference_max, config_.many_groups),
    progress_(seen_, membership_, at_, strategy_.averages, config_.target_batch_size,
              config_.averaging_timeout),
    vote_(not_finite_sample()),
    report_(report_of(config_, strategy_), ctx_.metrics, seen_, membership_, at_, vote_) {
  WAGGLE_CHECK(!config_.many_groups || !exact(), config_.strategy.text());
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
  awaited_.clear();
  left_ = {};
}

trainer::behavior_type trainer::make_behavior() {
  began_ = checkpoint_.begun = now();
  (void)report_.is_due(true, now()); // a new phase is reported before
  report_.count_time(work().present(), now());
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
      if (membership_.is_member() && !round_runs())
        progress_.observe();
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
      if (left_.others.has(msg.peer.id)) // it is back, and will ask for what it has left
        caf::anon_send(peers_.switchboard,
                       call_peer{msg.peer, wire::open_state{{}, {}, msg.peer.id, true}, 5s});
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
      left_.others.drop_old(now());
      if (pass_.is_late(now()))
        pass_.go_on();
      react();
    },
    [this](gradient_offered) { on_offered(); },
    [this](const pass_done& msg) { on_pass(msg); },
    [this](const update_applied& msg) {
      vector_.applied();
      show_model(msg.plateau, msg.epoch);
      vote_.hold(msg.epoch, msg.parameters, msg.sketch);
      if (vector_.waiting() == 0)
        report_own_progress();
      react();
    },
    [this](const image_loaded& msg) { on_loaded(msg); },
    [this](const model_evaluated& msg) {
      report_.status.eval_epoch = msg.epoch;
      report_.status.eval_loss = msg.found.loss;
      report_.status.eval_accuracy = msg.found.accuracy;
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
  show_model({}, ready.epoch);
  passes_ = ready.passes;
  vote_.hold(ready.epoch, ready.parameters, ready.sketch);
  at_.begin(ready.past, ready.epoch);
  membership_.merged(ready.epoch);
  progress_.enter(now());
  membership_.begin(now());
  auto fits = vector_.begin(model_);
  if (fits.ok() && steps_locally() && !model_->abilities().steps_locally)
    fits = failure{ec::bad_config, "this model cannot step locally, as --strategy "
                                     + config_.strategy.text() + " does"};
  if (!fits.ok()) {
    ctx_.log->error("training cannot begin: {}", to_string(fits.error()));
    return quit(to_caf(fits.error()));
  }
  if (!config_.notice.empty())
    ctx_.log->warn("{}", config_.notice);
  if (config_.auxiliary || ready.kept->stopped)
    left_.recalled = left_state::at::over; // it is in our own checkpoint
  take_over(*ready.kept);
  begin_counting();
  std::shared_ptr<two_round_coding> coding;
  if (const auto& how = averages().coding; how.rank > 0) {
    coding = low_rank::make(model_->tensors(), how, ctx_.run_id);
    if (!coding)
      ctx_.log->warn("no tensor of this model is large enough for --low-rank {}", how.rank);
  }
  send(peers_.averager, describe_vector{vector_.value_count(), vector_.infos(), coding,
                                        ready.kept->residual, ready.past.branch});
  report_own_progress();
  delayed_send(this, look_interval, check_swarm{true});
  react();
}

/// Decides, on everything that is known now, what can be begun, and begins it.
void trainer::react() {
  if (!model_ || stop_.begun)
    return report_.count_time(work().present(), now());
  follow_notice();
  if (follow_membership()) {
    if (differs_from_most()) {
      distrust_own_state("our parameters differ from those of most peers");
    } else {
      if (membership_.is_outdated(facts()))
        follow_run(true);
      fetch_if_needed();
      give_awaited();
      carry_out();
    }
  }
  show_phase();
  report_.count_time(work().present(), now());
  publish(false);
}

bool trainer::done() const {
  return (config_.max_epochs != 0 && at_.epoch().value() >= config_.max_epochs)
         || (report_.status.strategy && report_.status.strategy->ended())
         || (config_.max_passes != 0 && counts_passes() && vector_.waiting() == 0
             && report_.status.passes.back().pass > config_.max_passes);
}

/// The samples of an unfinished epoch, from the checkpoint from which the model resumed.
void trainer::take_over(const own_progress& kept) {
  report_.offer(model_->accumulated_samples() + kept.pending_samples, true);
  if (steps_locally())
    flight_.resume(kept);
  // They are of no use to another strategy, or after the last epoch.
  if (averages_parameters() || config_.auxiliary || done())
    return report_.drop(model_->drop_gradient() + kept.pending_samples, "stopped");
  if (!kept.pending)
    return report_.drop(kept.pending_samples, "stopped");
  if (row_.on_boundary) // the state is from before this round, whose overlap follows from it
    strategy_ =
      row_.on_boundary(std::move(strategy_), config_.how, {model_->strategy_state(), false});
  // carry_out sends it once we are in a group of this epoch.
  flight_.hold(resumed(kept, at_.epoch()), report_.status.steps);
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

// -- samples: each is used in exactly one update, or dropped (INV-2) ------------------------------

void trainer::drop_accumulated(std::string_view reason) {
  if (!averages_parameters()) // otherwise the worker is about to step with it
    report_.drop(model_->drop_gradient(), reason);
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
    report_.use(samples, now());
  else if (!back)
    report_.drop(samples, why_dropped);
  else if (why_dropped == "not_finite" || why_dropped == "stopped")
    drop_accumulated(why_dropped);
}

// -- what is reported -----------------------------------------------------------------------------

/// Since the last boundary.
std::uint64_t trainer::own_samples() const {
  return averages_parameters() || !model_ ? flight_.counts().samples
                                          : model_->accumulated_samples();
}

digest trainer::held_parameters() const {
  return exact() && vector_.waiting() == 0 && !awaits_merge() ? vote_.parameters() : digest{};
}

const training_status& trainer::current_status() {
  auto& s = report_.status;
  auto outdated = model_ ? model_->outdated_samples() : 0;
  outdated -= std::exchange(outdated_, outdated);
  report_.offer(outdated);
  report_.drop(outdated, "behind");
  s.parameters = held_parameters();
  s.samples_toward_epoch = (averages_parameters() ? 0 : own_samples()) + flight_.in_flight();
  s.schedule_epoch = schedule_epoch();
  report_.complete(progress_.seconds(), doubts_.seen(now()), now());
  return s;
}

void trainer::publish(bool at_once) {
  if (!report_.is_due(at_once, now()))
    return;
  const auto& s = current_status();
  report_.measure(own_samples() + samples_of_others(), vector_.waiting());
  send(peers_.exporter, s);
}

trainer_work trainer::work() const {
  if (notice_.ended()) // whatever it did: there is nothing left to compute
    return {.started = true, .stopped = stop_.begun, .finished = true, .in_step = true};
  return {.started = model_ != nullptr,
          .stopped = stop_.begun,
          .finished = done() && vector_.waiting() == 0 && !awaits_merge(),
          .member = membership_.is_member(),
          .paused = membership_.is_paused(),
          .in_step = at_.in_step(),
          .downloads = sync_.busy(),
          .round_runs = round_runs(),
          .searches = searches(),
          .blocked = is_blocked(),
          .pass_runs = pass_.runs,
          .updates = vector_.waiting() > 0 && !(pass_.runs && config_.delay_optimizer_step),
          .rests = now() < pass_.ended + config_.step_interval};
}

void trainer::show_phase() {
  auto routine = [](trainer_phase p) {
    return p == trainer_phase::training || p == trainer_phase::averaging;
  };
  auto phase = work().phase();
  bool often = routine(report_.status.phase) && routine(phase); // twice per epoch
  if (!report_.enter(phase))
    return;
  log_about about{{.epoch = at_.epoch()}};
  ctx_.log->log(often ? spdlog::level::debug : spdlog::level::info, "trainer is {} at epoch {}",
                to_string(phase), at_.epoch().value());
  if (!often)
    publish(true);
}

/// Checks, at the end of an epoch, whether the settings suit the run (runtime/training/run_health).
void trainer::check_health(const round_report& report) {
  epoch_facts epoch{.contributors = static_cast<std::uint32_t>(report.contributors.size()),
                    .round_seconds = report.matchmaking_seconds + report.allreduce_seconds,
                    .download_seconds = sync_.took()};
  if (!averages_parameters() && report.weight_sum > 0)
    epoch.gradient_norm = report_.status.gradient_norm;
  for (const auto& sentence : report_.check_epoch(epoch, now()))
    ctx_.log->warn("{}", sentence);
}

void trainer::log_progress() {
  if (!report_.logs_progress(now()))
    return;
  const auto& s = current_status();
  auto seconds = progress_.seconds(); // of an epoch
  log_about about{{.epoch = s.epoch,
                   .loss = s.loss,
                   .samples_per_second = s.samples_per_second,
                   .seconds = seconds > 0 ? std::optional{seconds} : std::nullopt}};
  ctx_.log->info("{}", report_.progress());
}

/// The state that the model has now, at the beginning of `epoch`.
void trainer::show_model(const std::optional<plateau_report>& plateau, epoch_id epoch) {
  if (auto ledger = model_->ledger())
    if (auto line = report_.show(*ledger))
      ctx_.log->info("{}", *line);
  log_about about{{.epoch = epoch}};
  if (auto phase = row_.phase ? config_.strategy.phase(model_->strategy_state()) : std::nullopt)
    if (auto line = report_.show(row_.name, *phase))
      ctx_.log->info("{}", *line);
  if (plateau)
    if (auto line = report_.show(*plateau, epoch))
      ctx_.log->info("{}", *line);
}

void trainer::wait_for(std::string what) {
  log_about about{{.epoch = at_.epoch()}};
  log_wait(*ctx_.log, report_.wait_for(std::move(what), now()));
}

void trainer::report_own_progress() {
  if (!model_)
    return;
  reported_.to_tracker = now();
  // While a round runs, samples already count toward the epoch after it, which no peer may claim
  // yet. With a ledger, an update may make this peer drop samples.
  bool unsure = counts_passes() && vector_.waiting() > 0;
  reported_.own_samples = round_runs() || unsure ? 0 : own_samples();
  history_claim claim{.past = at_.past(), .provisional = membership_.provisional()};
  auto members = membership_.is_member() ? membership_.members().size() : 0;
  // Every peer sees by itself how many train the history: if each claimed it, one newcomer would
  // make all of them report to all.
  if (config_.many_groups)
    members = std::min<std::size_t>(members, 2);
  claim.group_size = static_cast<std::uint32_t>(members);
  claim.ready = at_.in_step() && (membership_.is_member() || at_.past().work > 0);
  claim.reduces_only = config_.auxiliary;
  // An auxiliary begins rounds by this number.
  using enum lane_clock::unit;
  auto counts = averages().due.counts;
  auto target = claim.target_batch_size = counts == swarm_samples ? config_.target_batch_size : 0;
  std::optional<std::uint64_t> missing;
  if (counts == each_member || notice_.begun() || (counts_passes() && !model_->has_samples()))
    missing = 0;
  else if (counts == swarm_samples)
    missing = (target - std::min(target, reported_.own_samples + samples_of_others()))
              / (config_.many_groups ? 8 : 1); // they search before the epoch may end
  auto parameters = at_.in_step() ? held_parameters() : digest{};
  send(peers_.tracker, report_progress{at_.epoch(), reported_.own_samples, parameters, claim,
                                       notice_.begun() ? notice_period::speed : pass_.rate,
                                       report_.vitals(pass_.seconds), vote_.sketch(),
                                       progress_.seconds(), missing});
}

} // namespace waggle
