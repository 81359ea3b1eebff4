// One epoch: the round that averages what the passes gave (trainer_passes.cpp), the update that
// ends it.

#include <algorithm>
#include <cmath>
#include <set>

#include <spdlog/logger.h>

#include "actors/training/trainer.hpp"
#include "runtime/averaging/group_majority.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/training/smooth.hpp"

namespace waggle {

namespace {

constexpr std::size_t passes_shown = 100;
/// From the begin of an epoch until all members in step have reported something.
constexpr auto reports_due = 1s;
constexpr double tail_patience = 10; // seconds

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (float v : values)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

/// Only members that had completed a round before: whoever is just admitted has done nothing yet.
std::vector<peer_id> tried_members(const round_report& report) {
  std::vector<peer_id> out;
  for (const auto& [member, mark] : report.gathered)
    if (!has_just_entered(mark))
      out.push_back(member);
  return out;
}

bool contributed(const peer_id& peer, const round_report& report) {
  const auto& in = report.contributors;
  return std::find(in.begin(), in.end(), peer) != in.end();
}

/// training_config::averaging_alpha: the target of a change from `snapshot` to `mean`.
std::shared_ptr<const float_vector> on_the_way(const float_vector& snapshot,
                                               const float_vector& mean, double alpha,
                                               vector_pool& vectors) {
  auto out = vectors.take(mean.size());
  for (std::size_t i = 0; i < mean.size(); ++i)
    (*out)[i] = moved_towards(snapshot[i], mean[i], alpha);
  return out;
}

} // namespace

/// The samples that the other members have reported for this epoch.
std::uint64_t trainer::samples_of_others() const {
  bool by_samples = averages().due.counts == lane_clock::unit::swarm_samples;
  constexpr auto most = std::uint64_t{1} << 40U; // the sum of 64 members does not overflow
  std::uint64_t sum = 0;
  for (const auto& peer : seen_.progress.peers)
    if (counts_here(peer))
      sum += by_samples ? claims_.counted(peer.who.id, peer.samples, now())
                        : std::min(peer.samples, most);
  return sum;
}

/// Whether all samples that the members may draw before this epoch ends are drawn and reported.
/// Members that have not reported anything yet, because the epoch has just begun, are waited for;
/// those that download a state are not, nor those that add nothing any more. A round without
/// samples would begin the run, so that none is due before training may begin.
bool trainer::samples_exhausted() {
  if (!counts_passes() || pending_.waiting() > 0 || awaits_merge() || round_runs()
      || config_.auxiliary || !enough_peers())
    return false;
  auto ledger = model_->ledger();
  auto left = ledger->left_to(ctx_.record.id);
  std::set<peer_id> reported{ctx_.record.id};
  for (const auto& peer : seen_.progress.peers)
    if (counts_here(peer)) {
      left += ledger->left_to(peer.who.id);
      reported.insert(peer.who.id);
    }
  auto samples = own_samples() + samples_of_others();
  auto without_more = epoch_.without_more(samples, now());
  if (samples < left)
    return !model_->has_samples() && !pass_.runs && without_more > tail_patience;
  const auto& members = membership_.members();
  return now() - epoch_.began > reports_due
         || std::all_of(members.begin(), members.end(), [&](const peer_id& who) {
              return reported.contains(who) || ledger->left_to(who) == 0;
            });
}

/// The ledger of the state that the model has now.
void trainer::note_ledger() {
  auto ledger = model_->ledger();
  if (!ledger)
    return;
  auto shown = [](std::uint64_t pass, const sample_ledger::account& of) {
    return pass_seen{pass, of.once, of.twice, of.never};
  };
  auto& all = status_.passes;
  auto before = all.empty() ? 0 : all.back().pass; // the one that was not complete
  std::erase_if(all, [&](const pass_seen& each) {
    return each.pass == before || each.pass > ledger->passes();
  });
  if (before != 0 && before == ledger->passes()) {
    auto ended = all.emplace_back(shown(before, ledger->last()));
    ctx_.log->info("pass {} over the data is complete: {} samples seen once, {} twice, {} never",
                   ended.pass, ended.once, ended.twice, ended.never);
  }
  all.push_back(shown(ledger->passes() + 1, ledger->present()));
  if (all.size() > passes_shown)
    all.erase(all.begin());
}

/// Milliseconds of the clock that all peers share.
std::uint64_t trainer::swarm_time() const {
  return static_cast<std::uint64_t>(to_nanoseconds(ctx_.wall->now())) / 1'000'000;
}

/// From here on, samples and steps count toward the next boundary.
void trainer::begin_counting() {
  flight_.begin_counting();
  epoch_.boundary_time = swarm_time();
  // Clocks differ: a round that another peer began early belongs to the nearest point of the grid.
  if (auto grid = averages().due.grid; grid != 0)
    epoch_.boundary_time = (epoch_.boundary_time + grid / 2) / grid * grid;
  epoch_.boundary = now();
  barrier_.begin(now());
  claims_.begin_epoch(now());
}

/// The input of the pure functions that decide (runtime/training/plan.hpp).
situation trainer::present() {
  situation now;
  now.own_steps = status_.steps;
  now.own_samples = at_.in_step() ? own_samples() : 0;
  if (at_.in_step() && !round_runs()) { // otherwise the others have reported nothing toward it
    now.swarm_samples = own_samples() + samples_of_others();
    now.boundary_steps = flight_.counts().passes;
    auto without =
      waits_for_members() ? membership_.without_pass(at_.past().branch, at_.epoch()) : std::nullopt;
    if (auto ledger = without ? model_->ledger() : std::nullopt)
      std::erase_if(*without, [&](const peer_id& who) { return ledger->left_to(who) == 0; });
    if (without)
      now.members_missing = barrier_.missing(*without, this->now());
  }
  now.boundary_time = epoch_.boundary_time;
  now.time = swarm_time();
  now.round_called = flight_.called() || serves_groups();
  // In many groups, a peer that is still downloading a state would only take another one's place.
  now.in_group = membership_.is_member() && (at_.in_step() || !config_.many_groups);
  now.members = static_cast<std::uint32_t>(membership_.members().size());
  now.pass_running = pass_.runs;
  now.searching = searches();
  bool in_use = steps_locally() ? copy_waits() && !pass_.is_late(this->now())
                                : pass_.runs && model_->waits_for_pass();
  now.gradient_in_use = at_.in_step() && (in_use || merges_in_turn());
  now.epochs_done = epoch_of_pass().value();
  now.max_epochs = done() ? now.epochs_done : config_.max_epochs;
  now.exhausted = at_.in_step() && samples_exhausted();
  now.round = flight_.round();
  now.last_epoch = flight_.last_epoch();
  return now;
}

void trainer::carry_out() {
  if (!membership_.is_member()) // what was decided before has left the group
    return;
  if (flight_.at() == flight::phase::held)
    return send_round(flight_.send(),
                      true); // its round failed, and we are in a group at its epoch again
  if (row_.on_boundary && at_.in_step()) // the next round may follow from those before it
    strategy_ = row_.on_boundary(std::move(strategy_), config_.how,
                                 {model_->strategy_state(), flight_.at() != flight::phase::idle});
  auto next = plan_next(averages(), present());
  if (next.merge) {
    merge();
    if (!membership_.is_member() || merges_in_turn()) // the rest is for what it leads to
      return;
  }
  if (next.begin) {
    if (membership_.is_outdated(facts())) // react may have seen nothing but running rounds
      return replace_outdated_state();
    if (membership_.has_other_mode(facts()))
      return change_mode();
    begin_round(!flight_.called() && !serves_groups());
    if (!membership_.is_member())
      return;
    if (searches()) // passes go on meanwhile
      return carry_out();
  }
  if (next.pass)
    maybe_pass();
}

void trainer::on_round(const group_round& round) {
  const auto& report = round.report;
  round_ended event{report};
  event.report.values.reset();
  send(peers_.exporter, std::move(event));
  bool failed = report.outcome == round_outcome::failed;
  if (failed && !(config_.many_groups && round.group.member)) {
    on_round_failed(report);
  } else {
    count_round(report);
    end_epoch(round);
    carry_out();
  }
  react();
}

/// Updates the status. A round that failed may leave us in the group: the epoch ends without it.
void trainer::count_round(const round_report& report) {
  log_about about{{.epoch = at_.epoch(), .round = report.round, .reason = report.why.code}};
  if (report.outcome == round_outcome::failed) {
    status_.last_outcome = "skipped: " + std::string{to_string(report.why.code)};
    if (serves_groups()) // no group needed it
      return;
    ++status_.rounds_failed;
    ctx_.log->info("epoch {} ends without an average: {}", at_.epoch().value(),
                   to_string(report.why));
    return;
  }
  auto done = report.contributors;
  if (ctx_.is_client()) // it reaches the others only through peers that reduce for it
    for (const auto& peer : report.participants)
      if (seen_.is_connected(peer) && !contributed(peer, report))
        done.push_back(peer);
  seen_.known.on_round(done);
  ++(report.outcome == round_outcome::complete ? status_.rounds_complete : status_.rounds_shrunk);
  status_.last_outcome = report.group_size == 1 ? "alone" : to_string(report.outcome);
  if (status_.first_round_seconds == 0) {
    status_.first_round_seconds = seconds_of(now() - reports_.began);
    ctx_.metrics->set_first_round(status_.first_round_seconds);
  }
}

void trainer::on_round_failed(const round_report& report) {
  log_about about{{.epoch = at_.epoch(), .round = report.round, .reason = report.why.code}};
  ++status_.rounds_failed;
  status_.last_outcome = "failed: " + std::string{to_string(report.why.code)};
  ctx_.log->info("epoch {} was not averaged: {}", at_.epoch().value(), to_string(report.why));
  // Otherwise a round of the next group that this peer is in has it. Once the others have a mean
  // without it, they hold another state; parameters differ anyway, and only one round was lost.
  bool excluded = report.why.code == ec::excluded;
  bool spoiled = flight_.given()->is_spoiled();
  if (spoiled || excluded || averages_parameters() || !at_.in_step())
    drop_contribution(spoiled ? "not_finite" : "left_out");
  membership_.lost(excluded, tried_members(report), facts());
  leave({});
  report_own_progress();
}

void trainer::end_epoch(const group_round& round) {
  const auto& report = round.report;
  log_about about{{.epoch = at_.epoch(), .round = report.round}};
  const auto& given = *flight_.given();
  if (!round.keeps_majority) // the history goes on without most of the group
    membership_.fell_apart(tried_members(report), facts());
  membership_.take(round.group.members, round.group.epoch);
  round_result ended;
  auto update = update_of(round, given, ended.why_dropped);
  bool took_part = contributed(ctx_.record.id, report);
  bool alone = took_part && report.contributors.size() == 1;
  ended.counted = update.mean && took_part;
  if (!round.keeps_majority) {
    ctx_.log->warn("most of the group is gone: going on provisionally as history {}",
                   short_name(update.branch));
  }
  check_deliveries(report, given);
  if (!serves_groups()) // its last round says nothing of those that it was not in
    note_health(report);
  losses_.end_epoch();
  epoch_.end(now());
  bool later = at_.in_step() && !averages().overlap.blocks();
  bool merges = update.mean && report.contributors.size() > 1;
  ended.follows = at_.end_epoch(std::move(update));
  if (averages().overlap.blocks())
    barrier_.begin(now()); // the passes begin with the update, and not with its round
  if (merges)
    membership_.merged(at_.epoch());
  flight_.end(std::move(ended), alone);
  if (!later)
    merge();
  give_awaited();
  if (membership_.is_member() && !round.group.member)
    leave("the group has ended, or its last round was decided without us");
  else if (membership_.is_member() && config_.many_groups && membership_.epoch() > at_.epoch())
    follow_run();
  report_own_progress();
  log_progress();
}

/// Merges the result of the last round into the model, if that has not happened yet.
void trainer::merge() {
  if (!awaits_merge())
    return;
  auto ended = flight_.take_result();
  settle(ended.counted, ended.why_dropped);
  carry(ended.follows);
}

/// The update with which a round ends its epoch. Also updates status and metrics.
/// @param why_dropped if the mean does not count our samples.
missed_update trainer::update_of(const group_round& round, const contribution& given,
                                 std::string& why_dropped) {
  why_dropped = "left_out";
  const auto& report = round.report;
  auto samples = samples_of(report.weight_sum);
  missed_update update;
  update.epoch = at_.epoch();
  update.rate = config_.schedule.at(at_.epoch()); // of no use to local steps
  if (const auto& merge = averages().merge; merge.how == lane_merge::rule::blend)
    // A mean of our samples alone would only pull us back to where we were.
    update.rate = given.from_state && samples != given.samples
                    ? merge.blend_share(report.contributors.size())
                    : 0;
  update.work = samples * report.contributors.size();
  update.position = given.position;
  update.branch = round.branch;
  update.before = at_.past().branch;
  update.by = {report.weight_sum, report.contributors};
  // These have a share of the data from the next epoch on. The marks are in the plan, so all
  // members see the same ones.
  for (const auto& [member, mark] : report.gathered)
    if (has_just_entered(mark) && !contributed(member, report))
      update.by.members.push_back(member);
  double norm = 0;
  bool fits = report.values && report.values->size() == averaged_->value_count();
  if (report.values && !fits)
    ctx_.log->error("the mean of epoch {} has {} values instead of {}, it is dropped",
                    at_.epoch().value(), report.values->size(), averaged_->value_count());
  if (given.is_spoiled()
      && report.contributors.size() == 1) { // ours: the others do not wait for it
    why_dropped = "not_finite";
  } else if (report.weight_sum > 0 && fits) {
    auto values = std::span<const float>{*report.values};
    auto gradient = std::min(values.size(), model_->parameter_count());
    norm = norm_of(values.first(gradient));
    update.mean = report.values;
    // Each pass was finite, but their sum may overflow.
    if (!std::isfinite(norm) || !all_finite(values.subspan(gradient))) {
      ctx_.metrics->count_nonfinite("gradient");
      ctx_.log->warn("the mean of epoch {} is not finite, it is dropped", at_.epoch().value());
      update.mean = nullptr;
      why_dropped = "not_finite";
    }
  }
  if (averaged_->counts_steps() && report.weight_sum > 0 && fits) {
    update.steps = steps_in(report);
    if (contributed(ctx_.record.id, report))
      flight_.count_steps();
  }
  if (keeps_progress() && given.samples > 0)
    ctx_.metrics->set_drift(norm_of(std::span{*given.own}.first(model_->parameter_count())));
  if (averages_parameters() && update.mean) {
    if (given.from_state) {
      update.snapshot = given.own;
      auto model = averaged_->model_value_count(); // the gradients of peers always differ
      ctx_.metrics->set_drift(
        distance(std::span{*update.mean}.first(model), std::span{*given.own}.first(model)));
      if (config_.averaging_alpha != 1)
        update.mean = on_the_way(*given.own, *update.mean, config_.averaging_alpha, *ctx_.vectors);
    } else { // a state that is downloaded now is about as good as one with this change
      update.mean = nullptr;
    }
  } else {
    status_.effective_batch = samples;
    if (update.mean && buffers_ && given.samples > 0) // otherwise nothing was contributed
      update.snapshot = buffers_in(*given.own);
  }
  ctx_.metrics->set_effective_batch(static_cast<double>(status_.effective_batch));
  if (!steps_locally() && status_.rate_reductions.value_or(0) == 0) // otherwise see note_plateau
    status_.learning_rate = update.rate;
  status_.gradient_norm = averages_parameters() ? 0 : norm;
  return update;
}

/// The change of history::steps by a round.
std::int64_t trainer::steps_in(const round_report& report) const {
  // In one group, members count as one each, whatever weight they claim. In many, the others make
  // as many steps as those in our group.
  auto members = config_.many_groups
                   ? (config_.auxiliary ? 0 : 1) + membership_.peers_that_step(at_.past().branch)
                   : report.contributors.size();
  auto total = at_.past().steps;
  return change_of_steps(std::span<const float>{*report.values}.last<step_values>(),
                         static_cast<double>(members), at_.in_step() ? &total : nullptr);
}

/// The buffers behind a gradient.
std::shared_ptr<const float_vector> trainer::buffers_in(const float_vector& values) const {
  auto begin = values.begin() + static_cast<std::ptrdiff_t>(model_->parameter_count());
  return std::make_shared<float_vector>(
    begin, begin + static_cast<std::ptrdiff_t>(model_->tensors().buffer_count()));
}

void trainer::apply(const run_position::step& step) {
  const auto& update = step.update;
  pending_.ask(update.bytes());
  if (update.snapshot && averages_parameters())
    pending_.add(update.mean, update.snapshot);
  else if (update.mean && buffers_)
    pending_.add(buffers_in(*update.mean), update.snapshot);
  send(worker_, apply_update{update, step.after, averages_parameters() ? averaged_ : nullptr});
}

} // namespace waggle
