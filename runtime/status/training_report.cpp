#include "runtime/status/training_report.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "runtime/training/smooth.hpp"

namespace waggle {

trainer_phase trainer_work::phase() const {
  if (stopped)
    return trainer_phase::stopped;
  if (!started)
    return trainer_phase::starting;
  if (!member)
    return finished && in_step ? trainer_phase::finished
           : paused            ? trainer_phase::paused
                               : trainer_phase::joining;
  if (!in_step)
    return trainer_phase::syncing;
  if (blocked || (round_runs && !searches && !pass_runs))
    return trainer_phase::averaging;
  return finished ? trainer_phase::finished : trainer_phase::training;
}

activity trainer_work::present() const {
  if (stopped || !started)
    return activity::idle;
  if (updates)
    return activity::update;
  if (pass_runs)
    return activity::pass;
  if (!member)
    return (finished && in_step) || paused ? activity::idle : activity::search;
  if (downloads || !in_step)
    return activity::download;
  // Beside a round that does not block, the next pass is not due yet.
  if (round_runs && (blocked || !rests))
    return searches ? activity::search : activity::round;
  return activity::idle;
}

training_report::training_report(options how, std::shared_ptr<metric_families> metrics,
                                 const run_view& seen, const membership& group,
                                 const run_position& at, const parameter_vote& vote)
  : how_(std::move(how)), metrics_(std::move(metrics)), seen_(seen), group_(group), at_(at),
    vote_(vote), health_(how_.health) {
  status.target_batch_size = how_.target_batch_size;
}

void training_report::complete(double epoch_seconds, const notice& doubt, steady_time now) {
  auto& s = status;
  s.epoch = at_.held_epoch();
  s.past = at_.held_past();
  s.global_epoch = std::max({s.epoch, at_.epoch(), group_.epoch_of_run()});
  s.group_size = group_.is_member() ? static_cast<std::uint32_t>(group_.members().size()) : 0;
  s.provisional = group_.provisional();
  s.differing_peers = vote_.differing();
  s.notices = health_.notices();
  if (!doubt.empty() && !health_.holds("slow_download"))
    s.notices = {doubt};
  if (s.notices.empty() && !how_.notice.empty())
    s.notices = {{"settings", how_.notice, {}}};
  auto left = how_.max_epochs - std::min(how_.max_epochs, at_.epoch().value());
  s.seconds_left = how_.max_epochs > 0 && epoch_seconds > 0
                     ? epoch_seconds * static_cast<double>(left)
                     : std::numeric_limits<double>::quiet_NaN();
  s.samples_per_second = used_.per_second(now).value_or(std::numeric_limits<double>::quiet_NaN());
  s.loss = losses_.smoothed();
  s.first_loss = losses_.of_first_epoch();
  // A gradient can be taken, or dropped, before the end of its pass is known here.
  s.samples_offered = std::max(
    {s.samples_offered, offered_, s.samples_used + s.samples_dropped + s.samples_toward_epoch});
  s.peers_behind = 0;
  std::set<digest> histories;
  if (s.group_size > 0)
    histories.insert(at_.past().branch);
  for (const auto& peer : seen_.progress.peers) {
    if (peer.claim.group_size > 0 && seen_.is_connected(peer.who.id))
      histories.insert(peer.claim.past.branch);
    if (peer.who.id != seen_.self && !peer.claim.auxiliary
        && (peer.claim.past.branch != at_.past().branch || peer.epoch < at_.epoch()
            || !peer.claim.ready))
      ++s.peers_behind;
  }
  s.histories = static_cast<std::uint32_t>(histories.size());
}

bool training_report::is_due(bool at_once, steady_time now) {
  if (!at_once && now - sent_ < status_interval)
    return false;
  sent_ = now;
  std::map<peer_id, bool> have_state; // of the peers that train this history
  for (const auto& peer : seen_.progress.peers)
    if (seen_.is_connected(peer.who.id) && peer.claim.trains(at_.past().branch)
        && !peer.claim.auxiliary)
      have_state.emplace(peer.who.id, peer.claim.ready);
  health_.see_peers(have_state, now);
  return true;
}

void training_report::measure(std::uint64_t batch, std::size_t waiting) const {
  metrics_->set_batch_progress(static_cast<double>(batch)
                               / static_cast<double>(how_.target_batch_size));
  metrics_->set_updates_waiting(static_cast<double>(waiting));
  metrics_->set_gradient_norm(status.gradient_norm);
}

bool training_report::logs_progress(steady_time now) {
  if (now - logged_ < log_interval)
    return false;
  logged_ = now;
  return true;
}

std::string training_report::progress() const {
  const auto& s = status;
  auto left = s.seconds_left;
  auto rest = how_.max_epochs == 0 ? std::string{}
              : std::isnan(left)   ? fmt::format(" of {}", how_.max_epochs)
              : left < 120         ? fmt::format(" of {}, {:.0f} s left", how_.max_epochs, left)
                           : fmt::format(" of {}, {:.0f} min left", how_.max_epochs, left / 60);
  auto loss = std::isfinite(s.loss) ? fmt::format("loss {:.3f}", s.loss) : "no loss yet";
  auto rate = std::isfinite(s.samples_per_second)
                ? fmt::format("{:.0f} samples/s here", s.samples_per_second)
                : "no update yet";
  return fmt::format("epoch {}{}: {}, {}, {} samples in the last update of {} peers, last round: "
                     "{}",
                     s.epoch.value(), rest, loss, rate, s.effective_batch, s.group_size,
                     s.last_outcome);
}

peer_vitals training_report::vitals(double pass_seconds) const {
  peer_vitals out;
  out.phase = static_cast<std::uint8_t>(status.phase);
  if (auto loss = static_cast<float>(status.loss); std::isfinite(loss))
    out.loss = loss;
  if (pass_seconds > 0 && pass_seconds <= vitals_seconds_max)
    out.pass_seconds = static_cast<float>(pass_seconds);
  if (auto rate = static_cast<float>(status.samples_per_second); std::isfinite(rate) && rate >= 0)
    out.samples_per_second = rate;
  if (auto shares = recent_.shares())
    for (std::size_t i = 0; i < shares->size(); ++i)
      out.shares.set(i, (*shares)[i]);
  return out;
}

bool training_report::enter(trainer_phase phase) {
  if (std::exchange(status.phase, phase) == phase)
    return false;
  metrics_->set_peer_state(phase == trainer_phase::finished || phase == trainer_phase::stopped
                             ? "paused"
                             : to_string(phase));
  return true;
}

void training_report::count_time(activity present, steady_time now) {
  if (auto span = time_.look(present, now))
    count(*span, now);
}

void training_report::count(const time_account::span& span, steady_time now) {
  metrics_->count_training_time(to_string(span.what), span.seconds);
  recent_.add(span, now);
}

std::string training_report::end_round(steady_time began, double agreement_seconds,
                                       steady_time now) {
  if (auto span = time_.look_now(now))
    count(*span, now);
  recent_.add_agreement(agreement_seconds, now);
  return recent_.take_spans(began);
}

std::optional<wait_log::line> training_report::wait_for(std::string what, steady_time now) {
  auto line = waits_.look(what, now);
  status.waiting_for = std::move(what);
  return line;
}

std::string training_report::begin_history(const history& past) {
  line_ = {at_.epoch()};
  if (past.parent.is_zero())
    return fmt::format("began the run's history {} at epoch {}", short_name(past.branch),
                       at_.epoch().value());
  return fmt::format("{} as history {}, from epoch {} of {}",
                     group_.provisional() ? "cut off from most of the group: going on provisionally"
                                          : "going on",
                     short_name(past.branch), at_.epoch().value(), short_name(past.parent));
}

std::optional<std::string> training_report::leave_history(const history& past, epoch_id last,
                                                          const history_choice& choice) {
  auto left = std::exchange(line_, {at_.epoch()});
  if (past.branch.is_zero() || past.branch == choice.branch
      || (left.samples == 0 && past.work == 0))
    return std::nullopt;
  if (left.samples > 0)
    metrics_->count_discarded("history_lost", static_cast<double>(left.samples));
  return fmt::format("history {} (up to epoch {}, {} of our samples since epoch {}) is not "
                     "continued: the run's is {} at epoch {}, which {} peers hold",
                     short_name(past.branch), last.value(), left.samples, left.began.value(),
                     short_name(choice.branch), at_.epoch().value(), choice.supporters);
}

void training_report::fall_back() {
  metrics_->count_local_fallback();
  ++status.local_fallbacks;
}

std::optional<std::string> training_report::compare(const parameter_vote::outcome& found) {
  if (!found.found.empty())
    metrics_->count_state_hash_check(found.found);
  if (found.minority)
    metrics_->count_state_hash_check("minority");
  if (!found.changed)
    return std::nullopt;
  if (vote_.differing() == 0)
    return std::nullopt;
  auto line =
    fmt::format("{} peers, {} among them, hold parameters that differ from ours at epoch {} of "
                "history {}",
                vote_.differing(), short_name(found.first), vote_.epoch().value(),
                short_name(at_.past().branch));
  constexpr int again = 3;
  if (++differed_ >= again)
    line +=
      written_.empty()
        ? ", for the " + std::to_string(differed_)
            + "th time: nothing of this loop has written to its parameters; does the other's?"
        : ": parameters changed since our update, first " + written_
            + ". Passes must not write to parameters (an embedding with max_norm does, and an "
              "average of parameters in place): leave it out, or do it before the loop begins";
  return line;
}

void training_report::offer(std::uint64_t samples, bool resumed) {
  offered_ += samples;
  if (resumed)
    status.samples_resumed += samples;
}

std::optional<std::string> training_report::show_rounding(const swarm_progress::peer* peer) {
  if (peer == nullptr || std::exchange(shown_rounding_, true))
    return std::nullopt;
  return fmt::format("peer {} rounds updates differently (another processor, GPU or version of "
                     "PyTorch): the peers' parameters are equal up to rounding only, and compared "
                     "so, to {:g} of their length",
                     short_name(peer->who.id), parameter_vote::rounding_max);
}

void training_report::use(std::uint64_t samples, steady_time now) {
  line_.samples += samples;
  used_.add(static_cast<double>(samples), now);
  status.samples_used += samples;
  if (samples > 0)
    metrics_->count_samples("used", static_cast<double>(samples));
}

void training_report::drop(std::uint64_t samples, std::string_view reason) {
  if (samples == 0)
    return;
  status.samples_dropped += samples;
  metrics_->count_samples("dropped", static_cast<double>(samples));
  metrics_->count_discarded(reason, static_cast<double>(samples));
}

std::optional<std::string> training_report::end_pass(const micro_step& step, double seconds,
                                                     steady_time now) {
  ++status.steps;
  if (!step.written.empty())
    written_ = step.written;
  pass_samples_ = step.samples;
  offer(step.samples);
  if (step.scale > 0)
    metrics_->set_loss_scale(step.scale);
  used_.begin(now
              - std::chrono::duration_cast<steady_time::duration>(
                std::chrono::duration<double>{std::max(seconds, 0.0)}));
  if (seconds > 0)
    smooth(status.compute_samples_per_second, static_cast<double>(step.samples) / seconds);
  if (step.finite)
    losses_.note(step.loss);
  else if (step.overflow)
    metrics_->count_loss_scale_overflow();
  else {
    metrics_->count_nonfinite(std::string_view{std::isfinite(step.loss) ? "gradient" : "loss"});
    return health_.pass_not_finite(now);
  }
  return std::nullopt;
}

std::optional<std::string> training_report::show(const sample_ledger& ledger) {
  auto shown = [](std::uint64_t pass, const sample_ledger::account& of) {
    return pass_seen{pass, of.once, of.twice, of.never};
  };
  std::optional<std::string> line;
  auto& all = status.passes;
  auto before = all.empty() ? 0 : all.back().pass; // the one that was not complete
  std::erase_if(
    all, [&](const pass_seen& each) { return each.pass == before || each.pass > ledger.passes(); });
  if (before != 0 && before == ledger.passes()) {
    const auto& ended = all.emplace_back(shown(before, ledger.last()));
    line =
      fmt::format("pass {} over the data is complete: {} samples seen once, {} twice, {} never",
                  ended.pass, ended.once, ended.twice, ended.never);
  }
  all.push_back(shown(ledger.passes() + 1, ledger.present()));
  if (all.size() > passes_shown)
    all.erase(all.begin());
  return line;
}

std::optional<std::string> training_report::show(const plateau_report& plateau, epoch_id epoch) {
  status.rate_reductions = plateau.reductions;
  if (plateau.reductions > 0)
    status.learning_rate = plateau.rate;
  if (!plateau.lowered)
    return std::nullopt;
  return fmt::format("the learning rate falls from {:.3g} to {:.3g} at epoch {}: the loss of the "
                     "swarm is {:.4f}, and the best one was {:.4f}",
                     plateau.rate_before, plateau.rate, epoch.value(), plateau.loss, plateau.best);
}

std::optional<std::string> training_report::show(std::string_view strategy,
                                                 const strategy_phase& phase) {
  auto before = std::exchange(status.strategy, phase);
  if (before && before->averages_as(phase))
    return std::nullopt;
  if (phase.ended())
    return fmt::format("{}: its {} epochs are over, and the run ends with them", strategy,
                       phase.epochs);
  auto batches = [](std::uint64_t n) { return fmt::format("{} batch{}", n, n == 1 ? "" : "es"); };
  auto of = phase.epochs > 0 ? fmt::format(" of {}", phase.epochs) : std::string{};
  auto rounds = phase.skips == 0 ? std::string{"a round after each batch, for which all wait"}
                                 : fmt::format("a round every {}, merged {} later",
                                               batches(phase.skips), batches(phase.wait));
  auto loss = std::isnan(phase.loss)
                ? std::string{}
                : fmt::format("; the loss was {:.4f}{}", phase.loss,
                              std::isnan(phase.best_loss)
                                ? std::string{}
                                : fmt::format(", the best one {:.4f}", phase.best_loss));
  return fmt::format("{}: {} from epoch {}{} on, {}{}", strategy, phase.name, phase.epoch + 1, of,
                     rounds, loss);
}

void training_report::count_round(bool complete, std::string_view outcome,
                                  steady_time::duration since) {
  ++(complete ? status.rounds_complete : status.rounds_shrunk);
  status.last_outcome = outcome;
  if (status.first_round_seconds == 0)
    status.first_round_seconds = seconds_of(since);
}

void training_report::show_update(std::optional<std::uint64_t> samples, double norm,
                                  std::optional<double> drift) {
  if (samples)
    status.effective_batch = *samples;
  status.gradient_norm = norm;
  if (drift)
    metrics_->set_drift(*drift);
}

std::vector<std::string> training_report::check_epoch(epoch_facts facts, steady_time now) {
  facts.own_gradient = std::exchange(fallbacks_, status.local_fallbacks) != status.local_fallbacks;
  facts.download_seconds = std::max(facts.download_seconds, health_.download_seconds());
  facts.pass_samples = pass_samples_;
  facts.peers = seen_.progress.num_peers;
  facts.samples_per_second = seen_.progress.samples_per_second;
  auto sentences = health_.end_epoch(facts, now);
  show_health();
  return sentences;
}

std::optional<std::string> training_report::give_download_up(const slow_download& what) {
  auto sentence = health_.download_given_up(what);
  show_health();
  return sentence;
}

void training_report::catch_up() {
  health_.caught_up();
  show_health();
}

void training_report::show_health() {
  for (auto rule : run_health::rules)
    metrics_->set_run_health(rule, health_.holds(rule));
}

} // namespace waggle
