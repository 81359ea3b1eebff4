// progress, calls, results, passes, links, time ─► react()
//   outside: choose_history ─► enter_group │ found_group
//   member:  not in step ─► state_fetcher ─► load_image, then the missed updates
//            target reached, or called ─► take the gradient ─► average_in_group ─► apply_update
//            else ─► run_pass

#include "actors/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

constexpr auto look_interval = 20ms;
constexpr auto report_interval = 2ms;
constexpr auto status_interval = 100ms;
constexpr auto progress_log_interval = 10s;
constexpr auto wait_log_interval = 10s;
constexpr auto entry_pause = 200ms;
constexpr auto patience_with_founder = 3s;
constexpr auto alone_among_nodes = 3s;
constexpr double report_delay = 0.002; // seconds, from one peer's report to another's decision
constexpr std::size_t gradients = 0;   // the only lane of the collaborative strategy

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (float v : values)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

void smooth(double& average, double value) {
  average = average == 0 ? value : 0.8 * average + 0.2 * value;
}

std::string_view activity(trainer_phase phase) {
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

/// The name of a branch that begins where a quorum is lost: the same for all who go on.
digest forked(const digest& parent, const round_id& round) {
  return sha256_stream{}.add("waggle fork").add(parent.view()).add(round.view()).finish();
}

} // namespace

trainer::trainer(caf::actor_config& cfg, node_context ctx, training_config config,
                 worker_factory worker, trainer_peers peers)
  : trainer_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    strategy_(collaborative(config_.target_batch_size)), make_worker_(std::move(worker)),
    peers_(std::move(peers)), random_(ctx_.randomness("trainer")),
    missed_(config_.missed_bytes_max), ledger_(strategy_) {
  end_on_exception(this, ctx_);
}

void trainer::on_exit() {
  if (worker_)
    send_exit(worker_, caf::exit_reason::user_shutdown);
  worker_ = nullptr;
  peers_ = {};
}

trainer::behavior_type trainer::make_behavior() {
  phase_began_ = told_exporter_ = checkpointed_ = now();
  return {
    [this](start_training) { start(); },
    [this](stop_training) { return stop(); },
    [this](get_training_status) -> training_status { return current_status(); },
    [this](const get_state_snapshot& msg) { return snapshot(msg); },
    [this](const swarm_progress& msg) {
      view_ = msg;
      react();
    },
    [this](const group_view& msg) {
      if (place_ == place::member && msg.member && msg.epoch == epoch_)
        group_ = msg;
      tell_progress();
      react();
    },
    [this](const round_called& msg) {
      called_ = called_ || (place_ == place::member && msg.epoch == epoch_);
      react();
    },
    [this](const dht_status& msg) {
      dht_ = msg;
      react();
    },
    [this](const peer_connected& msg) {
      connected_.insert(msg.peer.id);
      unreachable_.erase(msg.peer.id);
      react();
    },
    [this](const peer_disconnected& msg) {
      connected_.erase(msg.peer);
      react();
    },
    [this](const look_around& msg) {
      if (msg.again)
        delayed_send(this, look_interval, msg);
      else
        pass_planned_ = false;
      react();
    },
    [this](const pass_done& msg) { on_pass(msg); },
    [this](const update_applied& msg) {
      updates_under_way_ -= updates_under_way_ > 0 ? 1 : 0;
      model_epoch_ = msg.epoch;
      model_parameters_ = msg.parameters;
      if (updates_under_way_ == 0)
        tell_progress();
      react();
    },
    [this](const image_loaded& msg) { on_loaded(msg); },
  };
}

// -- what is told of us
// ----------------------------------------------------------------------------

std::uint64_t trainer::own_samples() const {
  return model_ ? model_->accumulated_samples() : 0;
}

const training_status& trainer::current_status() {
  auto& s = status_;
  s.epoch = place_ == place::member && !in_step_ ? held_.epoch : epoch_;
  s.parameters = updates_under_way_ == 0 ? model_parameters_ : digest{};
  s.samples_toward_epoch = own_samples() + ledger_.in_flight();
  s.samples_used = ledger_.used();
  s.samples_dropped = ledger_.dropped();
  s.global_epoch = std::max(s.epoch, epoch_);
  for (const auto& peer : view_.peers)
    if (peer.claim.group_size > 0 && peer.claim.line.branch == line_.branch)
      s.global_epoch = std::max(s.global_epoch, peer.epoch);
  s.target_batch_size = config_.target_batch_size;
  s.loss = losses_.smoothed();
  s.first_loss = losses_.of_first_epoch();
  s.line = line_;
  s.group_size = place_ == place::member ? static_cast<std::uint32_t>(group_.members.size()) : 0;
  s.provisional = provisional_;
  s.peers_behind = 0;
  for (const auto& peer : view_.peers)
    if (peer.who.id != ctx_.record.id
        && (peer.claim.line.branch != line_.branch || peer.epoch < epoch_ || !peer.claim.ready))
      ++s.peers_behind;
  return s;
}

void trainer::publish(bool at_once) {
  if (!at_once && now() - told_exporter_ < status_interval)
    return;
  told_exporter_ = now();
  const auto& s = current_status();
  ctx_.metrics->set_epochs(static_cast<double>(s.epoch.value()),
                           static_cast<double>(s.global_epoch.value()));
  ctx_.metrics->set_batch_progress(static_cast<double>(own_samples() + reported_samples())
                                   / static_cast<double>(config_.target_batch_size));
  ctx_.metrics->set_training(s.loss, s.learning_rate, s.gradient_norm);
  send(peers_.exporter, s);
}

void trainer::show_phase() {
  if (stopping_)
    return enter_phase(trainer_phase::stopped);
  if (!model_)
    return enter_phase(trainer_phase::starting);
  if (place_ != place::member)
    return enter_phase(done() && in_step_ ? trainer_phase::finished : trainer_phase::joining);
  if (!in_step_)
    return enter_phase(trainer_phase::syncing);
  if (given_ && given_->in_round)
    return enter_phase(trainer_phase::averaging);
  enter_phase(done() && updates_under_way_ == 0 ? trainer_phase::finished
                                                : trainer_phase::training);
}

void trainer::enter_phase(trainer_phase phase) {
  if (status_.phase == phase)
    return;
  auto routine = [](trainer_phase p) {
    return p == trainer_phase::training || p == trainer_phase::averaging;
  };
  bool often = routine(status_.phase) && routine(phase); // twice an epoch
  ctx_.metrics->count_training_time(activity(status_.phase), seconds_of(now() - phase_began_));
  phase_began_ = now();
  status_.phase = phase;
  ctx_.metrics->set_peer_state(phase == trainer_phase::finished || phase == trainer_phase::stopped
                                 ? "paused"
                                 : to_string(phase));
  ctx_.log->log(often ? spdlog::level::debug : spdlog::level::info, "trainer is {} at epoch {}",
                to_string(phase), epoch_.value());
  if (!often)
    publish(true);
}

void trainer::log_progress() {
  if (now() - logged_ < progress_log_interval)
    return;
  logged_ = now();
  const auto& s = current_status();
  ctx_.log->info(
    "epoch {}: loss {:.3f}, {:.0f} samples/s here, {} samples in the last update of {} "
    "peers, last round: {}",
    s.epoch.value(), s.loss, s.samples_per_second, s.effective_batch, s.group_size, s.last_outcome);
}

void trainer::wait_for(std::string what) {
  if (what == status_.waiting_for) {
    if (!what.empty() && now() - wait_logged_ >= wait_log_interval) {
      wait_logged_ = now();
      ctx_.log->info("for {:.0f} s now waiting for {}", seconds_of(now() - waiting_since_), what);
    }
    return;
  }
  if (!what.empty())
    ctx_.log->info("waiting for {}", what);
  status_.waiting_for = std::move(what);
  waiting_since_ = wait_logged_ = now();
}

void trainer::tell_progress() {
  if (!model_)
    return;
  told_tracker_ = now();
  told_samples_ = own_samples();
  history_claim claim;
  claim.line = line_;
  claim.group_size =
    place_ == place::member ? static_cast<std::uint32_t>(group_.members.size()) : 0;
  claim.ready = in_step_ && (place_ == place::member || line_.work > 0);
  claim.provisional = provisional_;
  auto parameters = in_step_ && updates_under_way_ == 0 ? model_parameters_ : digest{};
  send(peers_.tracker, report_progress{epoch_, told_samples_, parameters, claim, own_rate_});
}

// -- life
// ------------------------------------------------------------------------------------------

void trainer::start() {
  if (std::exchange(started_, true))
    return;
  worker_ = make_worker_(caf::actor_cast<model_listener_actor>(this));
  link_to(worker_);
  request(worker_, caf::infinite, make_model{}) // a large model takes its time; the node may end us
    .then([this](const model_ready& ready) { on_model(ready); },
          [this](const caf::error& why) { quit(why); });
}

void trainer::on_model(const model_ready& ready) {
  model_ = ready.model;
  epoch_ = model_epoch_ = ready.epoch;
  model_parameters_ = ready.parameters;
  line_ = ready.line;
  held_ = {line_, epoch_};
  outside_since_ = epoch_began_ = now();
  send(peers_.averager, describe_vector{model_->parameter_count(), nullptr});
  tell_progress();
  delayed_send(this, look_interval, look_around{true});
  react();
}

caf::result<training_status> trainer::stop() {
  if (!std::exchange(stopping_, true)) {
    send(peers_.averager, quit_group{});
    if (model_) {
      drop_accumulated("stopped");
      drop_contribution("stopped");
    }
    show_phase();
  }
  auto promise = make_response_promise<training_status>();
  if (!worker_ || !model_) {
    promise.deliver(current_status());
    return promise;
  }
  request(worker_, config_.sync_timeout, save_checkpoint{})
    .then([this, promise](const state_snapshot&) mutable { promise.deliver(current_status()); },
          [this, promise](const caf::error&) mutable { promise.deliver(current_status()); });
  return promise;
}

/// Looks at everything that is known now, and begins what can be begun.
void trainer::react() {
  if (!model_ || stopping_)
    return;
  switch (place_) {
    case place::outside:
      look_for_group();
      break;
    case place::entering:
      break;
    case place::member: {
      auto choice = choose();
      if (choice.what == course::enter) {
        yield_to(choice);
        break;
      }
      if (left_behind() && !(given_ && given_->in_round)) {
        leave("the others have gone on without us");
        break;
      }
      fetch_if_needed();
      carry_out();
      break;
    }
  }
  show_phase();
  publish(false);
}

bool trainer::done() const {
  return config_.max_epochs != 0 && epoch_.value() >= config_.max_epochs;
}

// -- the group
// -------------------------------------------------------------------------------------

history_choice trainer::choose() const {
  history_standing own{ctx_.record.id, line_, place_ == place::member, !ctx_.record.client_mode};
  std::vector<swarm_progress::peer> others;
  for (const auto& peer : view_.peers)
    if (is_heard(peer.who.id) && (peer.claim.group_size > 0 || !passed_over_.contains(peer.who.id)))
      others.push_back(peer);
  return choose_history(own, others);
}

/// Whether what a peer reported says something of the present. Records outlive their peers: to a
/// member only those count that it is connected to, to others also those that may be reached.
bool trainer::is_heard(const peer_id& peer) const {
  if (peer == ctx_.record.id)
    return false;
  return connected_.contains(peer) || (place_ != place::member && !unreachable_.contains(peer));
}

/// Most of the group have ended epochs without us: whatever we wait for here does not come.
bool trainer::left_behind() const {
  std::size_t ahead = 0;
  for (const auto& peer : view_.peers)
    ahead += peer.who.id != ctx_.record.id && peer.claim.line.branch == line_.branch
                 && peer.epoch.value() > epoch_.value() + 1
                 && std::find(group_.members.begin(), group_.members.end(), peer.who.id)
                      != group_.members.end()
               ? 1
               : 0;
  return ahead > 0 && 2 * ahead > group_.members.size() - 1;
}

void trainer::look_for_group() {
  if (now() < enter_after_)
    return;
  auto choice = choose();
  switch (choice.what) {
    case course::enter:
      return enter(choice);
    case course::wait:
      if (awaited_ != choice.awaited) {
        awaited_ = choice.awaited;
        awaited_since_ = now();
      } else if (now() - awaited_since_ >= patience_with_founder) {
        passed_over_.insert(awaited_);
      }
      return wait_for("peer " + short_name(choice.awaited)
                      + ", which holds the run's state, to "
                        "begin");
    case course::found: {
      bool others = std::any_of(view_.peers.begin(), view_.peers.end(),
                                [&](const auto& peer) { return peer.who.id != ctx_.record.id; });
      if (may_found(others))
        found();
      return;
    }
    case course::stay:
      return;
  }
}

/// Nobody else is to be followed: is it time to go on by ourselves?
bool trainer::may_found(bool others_seen) {
  auto waited = now() - outside_since_;
  if (ctx_.record.client_mode && config_.join_timeout > 0ms && waited < config_.join_timeout) {
    wait_for("a peer of the run that others can reach");
    return false;
  }
  if (lost_group_) {
    if (!config_.continue_on_split) {
      wait_for("most of the group, which cannot be reached (on-split is pause)");
      return false;
    }
    if (waited < config_.split_grace) {
      wait_for("most of the group, which cannot be reached");
      return false;
    }
    return true;
  }
  if (config_.join_timeout == 0ms || (dht_ && !dht_->addresses_known)) // the run's first peer
    return connected_.empty() || waited >= config_.settle_time;
  if (others_seen)
    return waited >= config_.settle_time;
  if (!connected_.empty()) {
    wait_for("a peer that trains: those reached do not");
    return waited >= std::min<milliseconds>(config_.join_timeout, alone_among_nodes);
  }
  if (waited >= config_.join_timeout && (line_.work > 0 || config_.may_start_alone)) {
    ctx_.log->warn("nobody of the run was reached within {:.0f} s: training alone",
                   seconds_of(config_.join_timeout));
    return true;
  }
  wait_for("any peer of the run: none of the addresses answers");
  return false;
}

void trainer::found() {
  place_ = place::entering;
  wait_for({});
  request(peers_.averager, 5s, found_group{epoch_})
    .then(
      [this](const group_view& group) {
        digest random;
        random_.fill(random.bytes);
        auto parent = line_;
        line_.parent = parent.branch;
        line_.forked_at = epoch_;
        line_.branch =
          sha256_stream{}.add("waggle branch").add(ctx_.run_id).add(random.view()).finish();
        provisional_ = std::exchange(lost_group_, false);
        held_ = {line_, epoch_};
        place_ = place::member;
        group_ = group;
        called_ = false;
        passed_over_.clear();
        since_fork_ = 0;
        line_began_ = epoch_;
        send(worker_, rename_history{line_});
        if (parent.branch.is_zero())
          ctx_.log->info("began the run's history {} at epoch {}", short_name(line_.branch),
                         epoch_.value());
        else
          ctx_.log->info("{} as history {}, from epoch {} of {}",
                         provisional_ ? "cut off from most of the group: going on provisionally"
                                      : "going on",
                         short_name(line_.branch), epoch_.value(), short_name(parent.branch));
        if (given_) { // the epoch ends with our own mean gradient (INV-6)
          ctx_.metrics->count_local_fallback();
          ++status_.local_fallbacks;
        }
        tell_progress();
        react();
      },
      [this](const caf::error& why) {
        ctx_.log->debug("could not begin a group: {}", to_string(from_caf(why)));
        place_ = place::outside;
        enter_after_ = now() + entry_pause;
      });
}

void trainer::enter(const history_choice& choice) {
  place_ = place::entering;
  wait_for({});
  request(peers_.averager, config_.averaging_timeout + 5s,
          enter_group{choice.through, config_.averaging_timeout})
    .then([this, choice](const group_view& group) { on_entered(choice, group); },
          [this, choice](const caf::error& why) {
            auto reason = from_caf(why);
            ctx_.log->debug("could not enter the run's group: {}", to_string(reason));
            if (reason.code == ec::unreachable || reason.code == ec::timeout
                || reason.code == ec::peer_lost)
              for (const auto& peer : choice.through)
                unreachable_.insert(peer.id); // until it is connected
            place_ = place::outside;
            enter_after_ = now() + entry_pause;
            if (reason.code == ec::group_full || reason.code == ec::schema_mismatch)
              wait_for("room in the run's group: " + to_string(reason));
            react();
          });
}

void trainer::on_entered(const history_choice& choice, const group_view& group) {
  place_ = place::member;
  group_ = group;
  called_ = false;
  lost_group_ = false;
  provisional_ = false;
  passed_over_.clear();
  outside_since_ = now();
  in_step_ = line_.branch == choice.branch && epoch_ == group.epoch;
  if (!in_step_) {
    held_ = {line_, epoch_};
    bool other = !line_.branch.is_zero() && line_.branch != choice.branch;
    if (other && since_fork_ > 0) {
      ctx_.log->warn("history {} (epochs {} to {}, {} of our samples) gives way to {}, which {} "
                     "peers hold; its last checkpoint stays on disk",
                     short_name(line_.branch), line_began_.value(), epoch_.value(), since_fork_,
                     short_name(choice.branch), choice.voices);
      ctx_.metrics->count_discarded("history_lost", static_cast<double>(since_fork_));
    }
    drop_accumulated(other ? "history_lost" : "left_out");
    drop_contribution(other ? "history_lost" : "left_out");
    since_fork_ = 0;
    line_ = {choice.branch, {}, {}, choice.work};
    epoch_ = group.epoch;
    line_began_ = epoch_;
    missed_.clear();
    loaded_.reset();
  }
  epoch_began_ = now();
  tell_progress();
  react();
}

/// Back to what the model holds.
void trainer::leave(const std::string& why) {
  if (!why.empty())
    ctx_.log->info("left the group of epoch {}: {}", epoch_.value(), why);
  send(peers_.averager, quit_group{});
  if (!in_step_) {
    line_ = held_.line;
    epoch_ = held_.epoch;
    in_step_ = true;
    missed_.clear();
    loaded_.reset();
  }
  place_ = place::outside;
  group_ = {};
  called_ = false;
  ++rounds_; // what a round of this group still reports does not count
  if (given_)
    given_->in_round = false;
  outside_since_ = now();
  awaited_ = {};
}

void trainer::yield_to(const history_choice& choice) {
  leave("history " + short_name(choice.branch) + " is held by " + std::to_string(choice.voices)
        + (choice.voices == 1 ? " peer" : " peers") + " and has more work");
  tell_progress();
  enter(choice);
}

// -- the state
// -------------------------------------------------------------------------------------

void trainer::fetch_if_needed() {
  if (in_step_ || fetching_ || loaded_ || now() < fetch_after_)
    return;
  std::vector<peer_record> holders;
  for (const auto& peer : view_.peers)
    if (peer.who.id != ctx_.record.id && peer.claim.ready && peer.claim.group_size > 0
        && peer.claim.line.branch == line_.branch)
      holders.push_back(peer.who);
  if (holders.empty())
    return wait_for("a peer that can give the state of history " + short_name(line_.branch));
  wait_for({});
  fetching_ = true;
  fetch_began_ = now();
  epoch_id first{epoch_.value() - missed_.size()};
  fetch_state question{donors_.among(std::move(holders)), line_.branch, first,
                       config_.sync_timeout};
  auto fetcher = spawn(state_fetcher, ctx_, config_.fetch, peers_.switchboard);
  auto branch = line_.branch;
  request(fetcher, config_.sync_timeout + 5s, std::move(question))
    .then(
      [this, branch](const fetched_state& fetched) {
        if (place_ == place::member && !in_step_ && line_.branch == branch)
          return on_fetched(fetched);
        fetching_ = false;
        react();
      },
      [this](const caf::error& why) { on_no_state(from_caf(why)); });
}

void trainer::on_fetched(const fetched_state& fetched) {
  fetched_bytes_ = fetched.state.size;
  last_donor_ = fetched.donor;
  send(worker_, load_image{fetched.state});
}

void trainer::on_no_state(const failure& why) {
  fetching_ = false;
  ctx_.log->warn("could not take the run's state: {}", to_string(why));
  send(peers_.exporter, state_download_ended{false, why, 0, seconds_of(now() - fetch_began_)});
  fetch_after_ = now() + donors_.failed();
  react();
}

void trainer::on_loaded(const image_loaded& outcome) {
  if (outcome.why.code != ec::none) {
    donors_.refuse(last_donor_);
    return on_no_state(outcome.why);
  }
  fetching_ = false;
  model_epoch_ = outcome.epoch;
  model_parameters_ = outcome.parameters;
  held_ = {outcome.line, outcome.epoch};
  donors_.succeeded();
  ++status_.state_downloads;
  status_.last_outcome = "state loaded";
  send(peers_.exporter,
       state_download_ended{true, {}, fetched_bytes_, seconds_of(now() - fetch_began_)});
  ctx_.log->info("took the state of epoch {} from peer {}; the group is at epoch {}",
                 outcome.epoch.value(), short_name(last_donor_), epoch_.value());
  if (place_ == place::member && !in_step_) {
    loaded_ = held_;
    catch_up();
  } else {
    line_ = held_.line;
    epoch_ = held_.epoch;
  }
  react();
}

/// Applies what the group did since the state that we have loaded.
void trainer::catch_up() {
  if (!loaded_ || loaded_->epoch > epoch_)
    return; // the donor was ahead: the rounds until then end without us
  auto from = *std::exchange(loaded_, std::nullopt);
  auto updates = missed_.take(from.epoch, epoch_);
  if (!updates) {
    ctx_.log->info("the state of epoch {} does not lead to epoch {}: taking another one",
                   from.epoch.value(), epoch_.value());
    fetch_after_ = now() + donors_.failed();
    return;
  }
  auto line = from.line;
  for (const auto& update : *updates) {
    line = update.after(line);
    apply(update, line);
  }
  line_ = line;
  held_ = {line_, epoch_};
  in_step_ = true;
  wait_for({});
  ctx_.log->info("in step at epoch {} after {} missed epochs", epoch_.value(), updates->size());
  tell_progress();
}

caf::result<state_snapshot> trainer::snapshot(const get_state_snapshot& wanted) {
  if (!model_ || !in_step_ || stopping_ || (place_ != place::member && line_.work == 0))
    return to_caf(ec::not_ready, "this peer has no state of the run yet");
  return delegate(worker_, wanted);
}

void trainer::checkpoint_if_due() {
  if (!config_.checkpoints || config_.checkpoint_every == 0 || !in_step_
      || epoch_.value() % config_.checkpoint_every != 0
      || now() - checkpointed_ < config_.checkpoint_interval)
    return;
  checkpointed_ = now();
  request(worker_, config_.sync_timeout, save_checkpoint{})
    .then([](const state_snapshot&) { /* it is on the disk, or the keeper said why not */ },
          [this](const caf::error& why) {
            ctx_.log->warn("no checkpoint was written: {}", to_string(from_caf(why)));
          });
}

// -- epochs
// ----------------------------------------------------------------------------------------

/// Whether what this peer reports is toward our group's epoch.
bool trainer::counts_here(const swarm_progress::peer& peer) const {
  const auto& in = group_.members;
  return peer.who.id != ctx_.record.id && peer.epoch == epoch_
         && peer.claim.line.branch == line_.branch && peer.claim.group_size > 0
         && std::find(in.begin(), in.end(), peer.who.id) != in.end();
}

/// What the other members have toward this epoch, as far as they said.
std::uint64_t trainer::reported_samples() const {
  std::uint64_t sum = 0;
  for (const auto& peer : view_.peers)
    if (counts_here(peer))
      sum += std::min<std::uint64_t>(peer.samples, config_.target_batch_size);
  return sum;
}

/// For the pure functions that decide (runtime/training/plan.hpp).
situation trainer::present() const {
  situation now;
  now.own_steps = status_.steps;
  now.own_samples = in_step_ ? own_samples() : 0;
  now.swarm_samples = in_step_ ? own_samples() + reported_samples() : 0;
  now.round_called = called_;
  now.in_group = place_ == place::member;
  now.members = static_cast<std::uint32_t>(group_.members.size());
  now.pass_running = passing_;
  now.epochs_done = epoch_.value();
  now.max_epochs = config_.max_epochs;
  now.lanes = ledger_.lanes();
  return now;
}

void trainer::carry_out() {
  if (given_ && !given_->in_round)
    return send_round(true); // its round failed, and we are in a group of its epoch again
  for (const auto& act : on_offer(strategy_, present()))
    switch (act.what) {
      case action::kind::merge:
        end_epoch(*std::exchange(ended_, std::nullopt));
        return carry_out(); // the rest of the plan was for the epoch that is over
      case action::kind::begin:
        begin_round(!called_);
        break;
      case action::kind::hold:
        maybe_pass();
        break;
      case action::kind::inner_step:
      case action::kind::give_up: // a round without a result is settled where it is reported
      case action::kind::end_epoch:
      case action::kind::await:
      case action::kind::finish:
        break;
    }
}

void trainer::begin_round(bool call) {
  auto own = ctx_.vectors->take(model_->parameter_count());
  contribution given{epoch_, nullptr, 0, false};
  if (in_step_)
    given.samples = model_->take_mean_gradient(*own);
  else
    std::fill(own->begin(), own->end(), 0.0F);
  given.own = std::move(own);
  ledger_.add(given.samples);
  (void)ledger_.begin(gradients, status_.steps, epoch_.value());
  given_ = std::move(given);
  send_round(call);
}

void trainer::send_round(bool call) {
  called_ = false;
  given_->in_round = true;
  average_in_group question{given_->own, static_cast<double>(given_->samples), epoch_, call,
                            config_.averaging_timeout};
  auto number = ++rounds_;
  request(peers_.averager, config_.averaging_timeout + 5s, std::move(question))
    .then(
      [this, number](const group_round& round) {
        if (number == rounds_)
          on_round(round);
      },
      [this, number](const caf::error& why) {
        if (number != rounds_)
          return;
        round_report report;
        report.why = from_caf(why);
        on_round_failed(report);
        react();
      });
}

void trainer::on_round(const group_round& round) {
  const auto& report = round.report;
  round_ended event{"gradients", report};
  event.report.values.reset();
  send(peers_.exporter, std::move(event));
  if (report.outcome == round_outcome::failed) {
    on_round_failed(report);
  } else {
    ++(report.outcome == round_outcome::complete ? status_.rounds_complete : status_.rounds_shrunk);
    status_.last_outcome = report.group_size == 1 ? "alone" : to_string(report.outcome);
    round_facts facts;
    facts.contributors = static_cast<std::uint32_t>(report.contributors.size());
    facts.own_samples = given_->samples;
    ledger_.end(gradients, waggle::on_round(strategy_.lanes[gradients], facts));
    ended_ = round;
    carry_out();
  }
  react();
}

void trainer::on_round_failed(const round_report& report) {
  ++status_.rounds_failed;
  status_.last_outcome = "failed: " + std::string{to_string(report.why.code)};
  ctx_.log->info("epoch {} was not averaged: {}", epoch_.value(), to_string(report.why));
  round_facts facts;
  facts.excluded = report.why.code == ec::excluded;
  facts.others_remain = facts.time_left = true; // in the group that we shall be in next
  facts.own_samples = given_->samples;
  if (waggle::on_round(strategy_.lanes[gradients], facts) != verdict::retry || !in_step_)
    drop_contribution("left_out");
  // Whoever was left out alone knows that the others go on.
  lost_group_ = !facts.excluded;
  leave({});
  tell_progress();
}

void trainer::end_epoch(const group_round& round) {
  const auto& report = round.report;
  auto given = *std::exchange(given_, std::nullopt);
  group_ = round.group;
  missed_update update;
  update.epoch = epoch_;
  update.rate = config_.schedule.at(epoch_);
  update.work = static_cast<std::uint64_t>(report.weight_sum) * report.contributors.size();
  update.branch = round.keeps_majority ? line_.branch : forked(line_.branch, report.round);
  double norm = 0;
  if (report.weight_sum > 0 && report.values) {
    norm = norm_of(*report.values);
    update.mean = report.values;
    if (!std::isfinite(norm)) { // each pass was finite, but their sum need not be
      ctx_.metrics->count_nonfinite("gradient");
      ctx_.log->warn("the mean gradient of epoch {} is not finite, it is dropped", epoch_.value());
      update.mean = nullptr;
    }
  }
  const auto& in = report.contributors;
  bool counted = update.mean && std::find(in.begin(), in.end(), ctx_.record.id) != in.end();
  count(ledger_.settle(gradients, counted), update.mean ? "left_out" : "not_finite");
  if (!round.keeps_majority) {
    provisional_ = true;
    ctx_.log->warn("most of the group is gone: going on provisionally as history {}",
                   short_name(update.branch));
  }
  line_ = update.after(line_);
  epoch_ = epoch_.next();
  called_ = false;
  losses_.end_epoch();
  status_.effective_batch = static_cast<std::uint64_t>(report.weight_sum);
  ctx_.metrics->set_effective_batch(report.weight_sum);
  status_.learning_rate = update.rate;
  status_.gradient_norm = norm;
  smooth(epoch_seconds_, seconds_of(now() - epoch_began_));
  epoch_began_ = now();
  if (in_step_) {
    held_ = {line_, epoch_};
    apply(update, line_);
    checkpoint_if_due();
  } else if (!missed_.add(std::move(update))) {
    ctx_.log->warn("the state takes longer to download than {} bytes of updates: starting over; a "
                   "larger target batch makes epochs longer",
                   config_.missed_bytes_max);
    fetch_after_ = now() + donors_.failed();
  } else {
    catch_up();
  }
  if (!group_.member)
    leave("the round was decided without us");
  tell_progress();
  log_progress();
}

void trainer::apply(const missed_update& update, const history& after) {
  ++updates_under_way_;
  send(worker_, apply_update{update.mean, update.rate, after});
}

pass_decision trainer::next_pass() const {
  pass_situation situation;
  situation.target = config_.target_batch_size;
  situation.own_samples = own_samples();
  situation.own_pass = pass_seconds_;
  situation.epoch = epoch_seconds_;
  auto wall = ctx_.wall->now();
  for (const auto& peer : view_.peers)
    if (counts_here(peer))
      situation.others.push_back({std::min(peer.samples, config_.target_batch_size),
                                  std::max(0.0, seconds_of(waggle::difference(wall, peer.time))),
                                  report_delay, peer.samples_per_second, 0});
  return decide_pass(situation);
}

void trainer::maybe_pass() {
  if (passing_ || !in_step_ || config_.auxiliary)
    return;
  auto plan_look = [this](std::chrono::nanoseconds pause) {
    if (!std::exchange(pass_planned_, true))
      delayed_send(this, pause, look_around{false});
  };
  auto next = passed_ + config_.step_interval;
  if (now() < next)
    return plan_look(next - now());
  // Peers that sleep between passes are not in the middle of one: nothing is to be expected of them
  // that their reports do not say.
  bool sleeps = seconds_of(config_.step_interval) > pass_seconds_;
  auto decided = sleeps ? pass_decision{} : next_pass();
  if (!decided.begin)
    return plan_look(std::chrono::nanoseconds{
      static_cast<std::int64_t>(std::clamp(decided.wait, 0.0005, 1.0) * 1e9)});
  passing_ = true;
  send(worker_, run_pass{});
}

void trainer::on_pass(const pass_done& pass) {
  passing_ = false;
  passed_ = now();
  const auto& step = pass.step;
  ++status_.steps;
  if (step.finite) {
    losses_.note(step.loss);
  } else {
    ctx_.metrics->count_nonfinite("gradient");
    ledger_.refuse(step.samples);
    count({0, step.samples}, "not_finite");
  }
  smooth(pass_seconds_, pass.seconds);
  if (pass.seconds > 0)
    smooth(status_.samples_per_second, static_cast<double>(step.samples) / pass.seconds);
  auto cycle = std::max(pass_seconds_, seconds_of(config_.step_interval));
  own_rate_ = cycle > 0 ? static_cast<double>(step.samples) / cycle : 0;
  bool reached = own_samples() + reported_samples() >= config_.target_batch_size;
  if (own_samples() != told_samples_ && (reached || now() - told_tracker_ >= report_interval))
    tell_progress();
  if (!in_step_) // it belongs to a state that we are about to give up
    drop_accumulated("left_out");
  react();
}

// -- samples
// ---------------------------------------------------------------------------------------

/// Tells the world what the ledger has settled.
void trainer::count(const flight_ledger::settlement& samples, std::string_view why_dropped) {
  since_fork_ += samples.used;
  if (samples.used > 0)
    ctx_.metrics->count_samples("used", static_cast<double>(samples.used));
  if (samples.dropped == 0)
    return;
  ctx_.metrics->count_samples("dropped", static_cast<double>(samples.dropped));
  ctx_.metrics->count_discarded(why_dropped, static_cast<double>(samples.dropped));
}

void trainer::drop_accumulated(std::string_view reason) {
  ledger_.add(model_->drop_gradient());
  count({0, ledger_.drop_accumulated()}, reason);
}

/// What we gave to a round that is over without us.
void trainer::drop_contribution(std::string_view reason) {
  ended_.reset();
  ++rounds_;
  if (!std::exchange(given_, std::nullopt))
    return;
  ledger_.end(gradients, verdict::left_out);
  count(ledger_.settle(gradients, false), reason);
}

} // namespace waggle
