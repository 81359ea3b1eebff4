// Rounds: what this peer contributes, when that is copied, how it is sent, and the update that ends
// the epoch.

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/group_majority.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

/// Only members that had completed a round before: whoever is just admitted has done nothing yet.
std::vector<peer_id> tried_members(const round_report& report) {
  std::vector<peer_id> out;
  for (const auto& [member, mark] : report.gathered)
    if (!has_just_entered(mark))
      out.push_back(member);
  return out;
}

bool contributed(const peer_id& peer, const round_report& report) {
  return std::ranges::find(report.contributors, peer) != report.contributors.end();
}

log_about::fields known_of(const round_report& report, epoch_id epoch) {
  return {.epoch = epoch,
          .round = report.round,
          .reason = report.why.code,
          .seconds = report.matchmaking_seconds + report.allreduce_seconds};
}

} // namespace

// -- contributions --------------------------------------------------------------------------------

void trainer::begin_round(bool call) {
  contribution given{.epoch = at_.epoch()};
  // What a neighbour gets must not be in a round, too.
  bool leaves = left_.handed != left_state::at::none && !config_.many_groups;
  given.from_state = at_.in_step() && !copy_waits() && !leaves;
  if (!given.from_state) {
    given.own = vector_.zeros(at_.epoch());
  } else if (!averages_parameters()) {
    if (pass_.outdated) // it may have ended: nothing in the sum belongs to our state
      drop_accumulated("left_out");
    if (auto dropped = vector_.take(given)) {
      ctx_.metrics->count_nonfinite("parameters");
      ctx_.log->warn(
        "our parameters are not finite: going on from the run's; a lower --lr may help");
      report_.drop(*dropped, "not_finite");
    }
    // Its worker tells of a pass after the gradient is there: it counts toward this round.
    if (pass_.runs && given.samples > 0 && flight_.counts().passes == 0)
      pass_.counted = true;
  } else {
    if (!config_.many_groups && !(given.own = copy_parameters())) {
      if (!membership_.is_member())
        return;
      given.from_state = false; // the loop is away
      given.own = vector_.zeros(at_.epoch());
    }
    given.weight = config_.auxiliary || !given.from_state ? 0 : 1;
    report_.status.effective_batch = own_samples() + samples_of_others();
  }
  if (!given.own)
    return find_members_of_round(std::move(given), call);
  flight_.hold(std::move(given), report_.status.steps);
  begin_counting();
  send_round(flight_.send(), call);
}

/// In many groups, the members of a round have to be found. Training goes on meanwhile, also where
/// rounds block. The members wait for each other's values: the copy is quick, and waits for a step
/// at most.
void trainer::find_members_of_round(contribution given, bool call) {
  auto number = flight_.search(std::move(given), report_.status.steps);
  begin_counting();
  // What ends the round of an auxiliary is the run's next epoch, however long this one lasts. Each
  // step of the averager has a deadline of its own, and the request fails if the averager ends.
  auto patience =
    serves_groups() ? caf::duration{caf::infinite} : caf::duration{config_.averaging_timeout + 5s};
  request(peers_.averager, patience,
          find_members{at_.epoch(), call, config_.averaging_timeout, averages_parameters()})
    .then(
      [this, number](const members_found& found) {
        if (pass_.runs && !model_->abilities().copies_during_passes && !pass_.is_late(now()))
          pass_.then = [this, number, found] { on_members(number, found); };
        else
          on_members(number, found);
      },
      [this, number](const caf::error& why) { on_no_answer(number, why); });
}

void trainer::on_members(std::uint64_t number, const members_found& found) {
  if (!flight_.awaits(number))
    return;
  bool ended = found.ended.has_value();
  bool copies = !ended || found.ended->report.values; // if it has ended: what the mean replaces
  bool away = pass_.runs && !model_->abilities().copies_during_passes;
  auto own = copies && !away ? copy_parameters() : nullptr;
  if (flight_.awaits(number)) {
    bool without_us = copies && !own; // the loop is away, and the others do not wait for it
    if (without_us)
      own = vector_.zeros(at_.epoch());
    auto of_round = flight_.found(std::move(own), !without_us);
    if (ended)
      return on_round(*found.ended);
    send_round(of_round, false);
  }
  if (!ended)
    react();
}

void trainer::send_round(std::uint64_t number, bool call) {
  const auto& given = *flight_.given();
  average_in_group question{
    given.own,   given.weight,  at_.epoch(), call, config_.averaging_timeout, averages_parameters(),
    given.fills, left_.residual};
  request(peers_.averager, config_.averaging_timeout + 5s, std::move(question))
    .then(
      [this, number, sent = left_.residual](const group_round& round) {
        if (left_.residual == sent)
          left_.residual = nullptr;
        on_answer(number, round);
      },
      [this, number](const caf::error& why) { on_no_answer(number, why); });
}

/// Of a vector that a pass fills, the pass that runs: a round of this peer alone ends at once.
void trainer::on_answer(std::uint64_t number, const group_round& round) {
  if (!flight_.awaits(number))
    return;
  const auto& fills = flight_.given()->fills;
  if (fills && !fills->ended())
    pass_.then = [this, number, round] { on_answer(number, round); };
  else
    on_round(round);
}

/// The averager did not take part in our round.
void trainer::on_no_answer(std::uint64_t number, const caf::error& why) {
  if (!flight_.awaits(number))
    return;
  round_report report{.why = from_caf(why)};
  on_round_failed(report);
  react();
}

// -- rounds ---------------------------------------------------------------------------------------

/// From here on, samples and steps count toward the next boundary.
void trainer::begin_counting() {
  flight_.begin_counting();
  progress_.begin_counting(ctx_.wall->now(), now());
}

/// The input of the pure functions that decide (runtime/training/plan.hpp).
situation trainer::present() {
  bool counts = counts_passes() && at_.in_step() && !round_runs();
  auto ledger = counts ? model_->ledger() : std::nullopt;
  situation now{.own_steps = report_.status.steps,
                .own_samples = at_.in_step() ? own_samples() : 0};
  if (at_.in_step() && !round_runs()) { // otherwise the others have reported nothing toward it
    now.boundary_steps = flight_.counts().passes;
    progress_.describe(now, own_samples(), ledger ? &*ledger : nullptr, this->now());
  }
  progress_.describe_time(now, ctx_.wall->now());
  now.round_called = flight_.called() || serves_groups();
  // In many groups, a peer that is still downloading a state would only take another one's place.
  now.in_group = membership_.is_member() && (at_.in_step() || !config_.many_groups);
  now.members = static_cast<std::uint32_t>(membership_.members().size());
  now.pass_running = pass_.runs;
  now.searching = searches();
  now.leaving = notice_.begun();
  now.idle = counts_passes() && !pass_.runs && !model_->has_samples();
  now.hurried = hurries();
  bool in_use = steps_locally() ? copy_waits() && !pass_.is_late(this->now())
                                : pass_.runs && model_->waits_for_pass();
  now.gradient_in_use = at_.in_step() && (in_use || merges_in_turn());
  now.epochs_done = epoch_of_pass().value();
  now.max_epochs = done() ? now.epochs_done : config_.max_epochs;
  now.exhausted = ledger && vector_.waiting() == 0 && !awaits_merge() && !config_.auxiliary
                  && enough_peers()
                  && progress_.exhausted(*ledger, own_samples(),
                                         (model_->has_samples() && !notice_.begun()) || pass_.runs,
                                         pass_, this->now());
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
      return follow_run(true);
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
  auto began = report.marks ? report.marks->began : now();
  event.spans = report_.end_round(began, report.agreement_seconds, now());
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
  log_about about{known_of(report, at_.epoch())};
  if (report.outcome == round_outcome::failed) {
    report_.status.last_outcome = "skipped: " + std::string{to_string(report.why.code)};
    if (serves_groups()) // no group needed it
      return;
    ++report_.status.rounds_failed;
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
  left_.others.contributed(report.contributors, at_.epoch());
  report_.count_round(report.outcome == round_outcome::complete,
                      report.group_size == 1 ? "alone" : to_string(report.outcome), now() - began_);
}

void trainer::on_round_failed(const round_report& report) {
  log_about about{known_of(report, at_.epoch())};
  ++report_.status.rounds_failed;
  report_.status.last_outcome = "failed: " + std::string{to_string(report.why.code)};
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
  membership_.take(round.group.members, round.group.epoch, round.group.clients);
  auto meaning = meaning_of(round, given);
  round_result ended{{}, meaning.counted, std::string{meaning.why_dropped}};
  auto& update = meaning.update;
  bool alone = report.contributors.size() == 1 && contributed(ctx_.record.id, report);
  if (!round.keeps_majority) {
    ctx_.log->warn("most of the group is gone: going on provisionally as history {}",
                   short_name(update.branch));
  }
  check_deliveries(report, given);
  if (!serves_groups()) // its last round says nothing of those that it was not in
    check_health(report);
  report_.end_epoch();
  progress_.end(now());
  bool later = at_.in_step() && !averages().overlap.blocks();
  bool merges = update.mean && report.contributors.size() > 1;
  ended.follows = at_.end_epoch(std::move(update));
  if (averages().overlap.blocks())
    progress_.begin_passes(now()); // the passes begin with the update, and not with its round
  if (merges)
    membership_.merged(at_.epoch());
  flight_.end(std::move(ended), alone);
  if (!later)
    merge();
  give_awaited();
  if (membership_.is_member() && !round.group.member)
    leave("the group has ended, or its last round was decided without us");
  else if (membership_.is_member() && config_.many_groups && membership_.epoch() > at_.epoch())
    follow_run(false);
  report_own_progress();
  log_progress();
}

/// What the round means for our model. Also updates status and metrics.
round_meaning trainer::meaning_of(const group_round& round, const contribution& given) {
  const auto& report = round.report;
  averaged_round ended;
  auto& update = ended.update;
  update.epoch = at_.epoch();
  update.mean = report.values;
  update.rate = config_.schedule.at(at_.epoch());
  update.branch = round.branch;
  update.before = at_.past().branch;
  update.by = {report.weight_sum, report.contributors};
  // Those that have just entered have a share of the data from the next epoch on. The marks are in
  // the plan, so all members see the same ones.
  for (const auto& [member, mark] : report.gathered)
    if (has_just_entered(mark) && !contributed(member, report))
      update.by.members.push_back(member);
  ended.contributors = report.contributors.size();
  ended.took_part = contributed(ctx_.record.id, report);
  // In one group, members count as one each, whatever weight they claim. In many, the others make
  // as many steps as those in our group.
  ended.stepping =
    static_cast<double>(config_.many_groups ? (config_.auxiliary ? 0 : 1)
                                                + membership_.peers_that_step(at_.past().branch)
                                            : report.contributors.size());
  auto total = at_.past().steps;
  ended.total = at_.in_step() ? &total : nullptr;
  auto meaning = vector_.meaning_of(std::move(ended), given);
  if (!meaning.fits)
    ctx_.log->error("the mean of epoch {} has {} values instead of {}, it is dropped",
                    at_.epoch().value(), report.values->size(),
                    vector_.tensors(at_.epoch()).value_count());
  if (!meaning.finite) {
    ctx_.metrics->count_nonfinite("gradient");
    ctx_.log->warn("the mean of epoch {} is not finite, it is dropped", at_.epoch().value());
  }
  if (meaning.counts_steps)
    flight_.count_steps();
  report_.show_update(meaning.samples, meaning.norm, meaning.drift);
  if (!steps_locally() && report_.status.rate_reductions.value_or(0) == 0) // else see show_model
    report_.status.learning_rate = meaning.update.rate;
  return meaning;
}

} // namespace waggle
