// What a trainer reports: status and metrics, log lines, its progress for the tracker.

#include <algorithm>
#include <cmath>
#include <set>

#include <spdlog/logger.h>

#include "actors/training/trainer.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

constexpr auto status_interval = 100ms;
constexpr auto progress_log_interval = 10s;

/// For other peers' pages. The mean of the passes' seconds, not of their speeds: of a peer with a
/// tenth of a core many passes take no longer than elsewhere, and the others ten times as long.
peer_vitals vitals_of(const training_status& s, double pass_seconds) {
  peer_vitals out;
  out.phase = static_cast<std::uint8_t>(s.phase);
  if (auto loss = static_cast<float>(s.loss); std::isfinite(loss))
    out.loss = loss;
  if (pass_seconds > 0 && pass_seconds <= vitals_seconds_max)
    out.pass_seconds = static_cast<float>(pass_seconds);
  return out;
}

} // namespace

/// Since the last boundary.
std::uint64_t trainer::own_samples() const {
  return averages_parameters() || !model_ ? flight_.counts().samples
                                          : model_->accumulated_samples();
}

const training_status& trainer::current_status() {
  auto& s = status_;
  s.epoch = membership_.is_member() && !at_.in_step() ? at_.held_epoch() : at_.epoch();
  s.parameters =
    exact() && pending_.waiting() == 0 && !awaits_merge() ? vote_.parameters() : digest{};
  s.samples_toward_epoch = (averages_parameters() ? 0 : own_samples()) + flight_.in_flight();
  s.schedule_epoch = schedule_epoch();
  s.global_epoch = std::max({s.epoch, at_.epoch(), membership_.epoch_of_run()});
  s.target_batch_size = config_.target_batch_size;
  s.notice = health_.holds("slow_download") ? health_.notice() : doubts_.notice(now());
  for (const auto& next : {health_.notice(), config_.notice})
    if (s.notice.empty())
      s.notice = next;
  auto left = config_.max_epochs - std::min(config_.max_epochs, at_.epoch().value());
  s.seconds_left = config_.max_epochs > 0 && epoch_.seconds > 0
                     ? epoch_.seconds * static_cast<double>(left)
                     : std::numeric_limits<double>::quiet_NaN();
  s.loss = losses_.smoothed();
  s.first_loss = losses_.of_first_epoch();
  s.past = at_.in_step() ? at_.past() : at_.held_past();
  s.group_size =
    membership_.is_member() ? static_cast<std::uint32_t>(membership_.members().size()) : 0;
  s.provisional = membership_.provisional();
  s.peers_behind = 0;
  s.differing_peers = vote_.differing();
  std::set<digest> histories;
  if (s.group_size > 0)
    histories.insert(at_.past().branch);
  for (const auto& peer : seen_.progress.peers)
    if (peer.claim.group_size > 0 && seen_.is_connected(peer.who.id))
      histories.insert(peer.claim.past.branch);
  s.histories = static_cast<std::uint32_t>(histories.size());
  for (const auto& peer : seen_.progress.peers)
    if (peer.who.id != ctx_.record.id && !peer.claim.auxiliary
        && (peer.claim.past.branch != at_.past().branch || peer.epoch < at_.epoch()
            || !peer.claim.ready))
      ++s.peers_behind;
  return s;
}

void trainer::publish(bool at_once) {
  if (!at_once && now() - reports_.to_exporter < status_interval)
    return;
  reports_.to_exporter = now();
  std::map<peer_id, bool> have_state; // of the peers that train this history
  for (const auto& peer : seen_.progress.peers)
    if (seen_.is_connected(peer.who.id) && peer.claim.group_size > 0 && !peer.claim.auxiliary
        && peer.claim.past.branch == at_.past().branch)
      have_state.emplace(peer.who.id, peer.claim.ready);
  health_.see_peers(have_state, now());
  const auto& s = current_status();
  ctx_.metrics->set_epochs(static_cast<double>(s.epoch.value()),
                           static_cast<double>(s.global_epoch.value()));
  ctx_.metrics->set_batch_progress(static_cast<double>(own_samples() + samples_of_others())
                                   / static_cast<double>(config_.target_batch_size));
  ctx_.metrics->set_histories(s.histories);
  ctx_.metrics->set_provisional(s.provisional);
  ctx_.metrics->set_updates_waiting(static_cast<double>(pending_.waiting()));
  ctx_.metrics->set_training(s.loss, s.learning_rate, s.gradient_norm);
  send(peers_.exporter, s);
}

void trainer::show_phase() {
  if (stop_.begun)
    return enter_phase(trainer_phase::stopped);
  if (!model_)
    return enter_phase(trainer_phase::starting);
  bool finished = done() && pending_.waiting() == 0 && !awaits_merge();
  if (!membership_.is_member())
    return enter_phase(finished && at_.in_step() ? trainer_phase::finished
                       : membership_.is_paused() ? trainer_phase::paused
                                                 : trainer_phase::joining);
  if (!at_.in_step())
    return enter_phase(trainer_phase::syncing);
  if (is_blocked() || (round_runs() && !searches() && !pass_.runs))
    return enter_phase(trainer_phase::averaging);
  enter_phase(finished ? trainer_phase::finished : trainer_phase::training);
}

activity trainer::present_activity() const {
  if (stop_.begun || !model_)
    return activity::idle;
  // The worker applies an update before the pass that waits behind it.
  if (pending_.waiting() > 0 && !(pass_.runs && config_.delay_optimizer_step))
    return activity::update;
  if (pass_.runs)
    return activity::pass;
  if (!membership_.is_member())
    return (done() && at_.in_step()) || membership_.is_paused() ? activity::idle : activity::search;
  if (sync_.busy() || !at_.in_step())
    return activity::download;
  // Beside a round that does not block, the next pass is not due yet.
  bool waits = is_blocked() || now() >= pass_.ended + config_.step_interval;
  if (round_runs() && waits)
    return searches() ? activity::search : activity::round;
  return activity::idle;
}

void trainer::count_time() {
  if (auto span = time_.look(present_activity(), now()))
    ctx_.metrics->count_training_time(to_string(span->what), span->seconds);
}

void trainer::enter_phase(trainer_phase phase) {
  if (status_.phase == phase)
    return;
  auto routine = [](trainer_phase p) {
    return p == trainer_phase::training || p == trainer_phase::averaging;
  };
  bool often = routine(status_.phase) && routine(phase); // twice per epoch
  status_.phase = phase;
  ctx_.metrics->set_peer_state(phase == trainer_phase::finished || phase == trainer_phase::stopped
                                 ? "paused"
                                 : to_string(phase));
  log_about about{{.epoch = at_.epoch()}};
  ctx_.log->log(often ? spdlog::level::debug : spdlog::level::info, "trainer is {} at epoch {}",
                to_string(phase), at_.epoch().value());
  if (!often)
    publish(true);
}

/// Checks, at the end of an epoch, whether the settings suit the run (runtime/training/run_health).
void trainer::note_health(const round_report& report) {
  epoch_facts epoch;
  epoch.peers = seen_.progress.num_peers;
  epoch.contributors = static_cast<std::uint32_t>(report.contributors.size());
  epoch.own_gradient =
    std::exchange(reports_.fallbacks, status_.local_fallbacks) != status_.local_fallbacks;
  epoch.round_seconds = report.matchmaking_seconds + report.allreduce_seconds;
  epoch.download_seconds = std::max(sync_.took(), health_.download_seconds());
  epoch.samples_per_second = seen_.progress.samples_per_second;
  epoch.pass_samples = pass_.samples;
  if (!averages_parameters() && report.weight_sum > 0)
    epoch.gradient_norm = status_.gradient_norm;
  for (const auto& sentence : health_.end_epoch(epoch, now()))
    ctx_.log->warn("{}", sentence);
  show_health();
}

void trainer::show_health() {
  for (auto rule : run_health::rules)
    ctx_.metrics->set_run_health(rule, health_.holds(rule));
}

void trainer::log_progress() {
  if (now() - reports_.logged < progress_log_interval)
    return;
  reports_.logged = now();
  const auto& s = current_status();
  auto left = s.seconds_left;
  auto rest = config_.max_epochs == 0 ? std::string{}
              : std::isnan(left)      ? fmt::format(" of {}", config_.max_epochs)
              : left < 120 ? fmt::format(" of {}, {:.0f} s left", config_.max_epochs, left)
                           : fmt::format(" of {}, {:.0f} min left", config_.max_epochs, left / 60);
  auto loss = std::isfinite(s.loss) ? fmt::format("loss {:.3f}", s.loss) : "no loss yet";
  log_about about{{.epoch = s.epoch}};
  ctx_.log->info("epoch {}{}: {}, {:.0f} samples/s here, {} samples in the last update of {} "
                 "peers, last round: {}",
                 s.epoch.value(), rest, loss, s.samples_per_second, s.effective_batch, s.group_size,
                 s.last_outcome);
}

/// The schedule plateau, in the state that the model has at the beginning of `epoch`.
void trainer::note_plateau(const std::optional<plateau_report>& now, epoch_id epoch) {
  if (!now)
    return;
  status_.rate_reductions = now->reductions;
  if (now->reductions > 0)
    status_.learning_rate = now->rate;
  ctx_.metrics->set_rate_reductions(static_cast<double>(now->reductions));
  log_about about{{.epoch = epoch}};
  if (now->lowered)
    ctx_.log->info(
      "the learning rate falls from {:.3g} to {:.3g} at epoch {}: the loss of the swarm "
      "is {:.4f}, and the best one was {:.4f}",
      now->rate_before, now->rate, epoch.value(), now->loss, now->best);
}

void trainer::wait_for(std::string what) {
  log_about about{{.epoch = at_.epoch()}};
  log_wait(*ctx_.log, waits_.look(what, now()));
  status_.waiting_for = std::move(what);
}

void trainer::report_own_progress() {
  if (!model_)
    return;
  reports_.to_tracker = now();
  // While a round runs, samples already count toward the epoch after it, which no peer may claim
  // yet. With a ledger, an update may make this peer drop samples.
  bool unsure = counts_passes() && pending_.waiting() > 0;
  reports_.own_samples = round_runs() || unsure ? 0 : own_samples();
  history_claim claim;
  claim.past = at_.past();
  auto members = membership_.members().size();
  // Every peer sees by itself how many train the history: if each claimed it, one newcomer would
  // make all of them report to all.
  if (config_.many_groups)
    members = std::min<std::size_t>(members, 2);
  claim.group_size = membership_.is_member() ? static_cast<std::uint32_t>(members) : 0;
  claim.ready = at_.in_step() && (membership_.is_member() || at_.past().work > 0);
  claim.provisional = membership_.provisional();
  claim.reduces_only = config_.auxiliary;
  // An auxiliary begins rounds by this number.
  bool by_samples = averages().due.counts == lane_clock::unit::swarm_samples;
  claim.target_batch_size = by_samples ? config_.target_batch_size : 0;
  bool comparable = exact() && at_.in_step() && pending_.waiting() == 0 && !awaits_merge();
  auto parameters = comparable ? vote_.parameters() : digest{};
  send(peers_.tracker, report_progress{at_.epoch(), reports_.own_samples, parameters, claim,
                                       pass_.rate, vitals_of(status_, pass_.seconds)});
}

} // namespace waggle
