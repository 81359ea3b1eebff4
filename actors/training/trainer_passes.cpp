// Passes: when the next one begins, and what becomes of its gradient. What this peer contributes to
// a round, when it is copied, and how it is sent; trainer_epoch.cpp decides when a round begins,
// and uses its result.

#include <algorithm>
#include <cmath>

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/training/resumable_learner.hpp"
#include "runtime/training/smooth.hpp"

namespace waggle {

namespace {

constexpr auto report_interval = 2ms;
constexpr auto look_again = 100ms;     // at the latest
constexpr double report_delay = 0.002; // seconds from a peer's report to another peer's decision

} // namespace

epoch_id trainer::epoch_of_pass() const {
  return round_runs() && !is_blocked() ? at_.epoch().next() : at_.epoch();
}

/// The epoch of the schedule for the next local step.
epoch_id trainer::schedule_epoch() {
  const auto& clock = strategy_.schedule;
  schedule_position now{epoch_of_pass(), at_.in_step() ? at_.past().steps : at_.held_past().steps};
  if (clock.epochs_per_round > 1) {
    now.per_round = averages().due.every;
    // While a round runs, the others have not reported anything toward the next one.
    now.samples = own_samples() + (round_runs() ? 0 : samples_of_others());
  }
  return epoch_.of_schedule =
           without_going_back(clock, epoch_.of_schedule, waggle::schedule_epoch(clock, now));
}

/// Of the next local step. Where an update takes many steps of each peer, a rate that rises or
/// falls steadily does so within an epoch, too.
double trainer::rate_of_pass() {
  const auto& schedule = config_.schedule;
  if (averages_parameters())
    return schedule.at(schedule_epoch());
  auto share =
    static_cast<double>(flight_.counts().passes) / static_cast<double>(averages().due.every);
  return schedule.within(schedule_epoch(), share);
}

pass_decision trainer::next_pass() const {
  if (waits_for_members())
    return {own_samples() == 0, seconds_of(look_again)};
  if (round_runs())
    return pass_during_round();
  pass_situation situation;
  situation.target = config_.target_batch_size;
  situation.own_samples = own_samples();
  situation.own_pass = pass_.seconds;
  situation.epoch = epoch_.seconds;
  auto wall = ctx_.wall->now();
  for (const auto& peer : seen_.progress.peers)
    if (counts_here(peer))
      situation.others.push_back({claims_.counted(peer.who.id, peer.samples, now()),
                                  std::max(0.0, seconds_of(waggle::difference(wall, peer.time))),
                                  report_delay,
                                  claims_.speed(peer.who.id, peer.samples_per_second, now()), 0});
  return decide_pass(situation);
}

/// Whether training may begin: see training_config::min_peers.
bool trainer::enough_peers() {
  if (membership_.has_been_complete())
    return true;
  bool trains = status_.rounds_complete + status_.rounds_shrunk > 0; // others began without us
  auto lacks = membership_.lacks(trains, now());
  wait_for(lacks == 0
             ? std::string{}
             : fmt::format("{} more of the {} peers to begin with", lacks, config_.min_peers));
  return lacks == 0;
}

/// The others compute on, too, and report nothing before the round has ended: what they have done
/// is forecast from their speed.
pass_decision trainer::pass_during_round() const {
  auto since = seconds_of(now() - epoch_.boundary);
  double samples = static_cast<double>(own_samples());
  double rates = pass_.rate;
  for (const auto& peer : seen_.progress.peers)
    if (counts_here(peer)) {
      auto speed = claims_.speed(peer.who.id, peer.samples_per_second, now());
      samples += speed * since;
      rates += speed;
    }
  auto target = static_cast<double>(config_.target_batch_size);
  return {samples < target, target / std::max(rates, 1.0)};
}

void trainer::maybe_pass() {
  // With a second update waiting, a gradient would be two updates late.
  bool late = (config_.delay_optimizer_step && pending_.waiting() > 1) || merges_in_turn();
  // Only while a round of ours runs can the state be older than the tolerance allows: its end
  // decides how we go on.
  bool stale = config_.many_groups
               && membership_.epoch().value() > at_.epoch().value() + config_.epoch_difference_max;
  if (pass_.runs || late || !at_.in_step() || stale || config_.auxiliary || membership_.is_paused()
      || !enough_peers() || !model_->has_samples())
    return;
  auto plan_look = [this](std::chrono::nanoseconds pause) {
    if (!std::exchange(pass_.planned, true))
      delayed_send(this, pause, check_swarm{false});
  };
  auto next = pass_.ended + config_.step_interval;
  if (now() < next)
    return plan_look(next - now());
  // Peers that sleep between passes are mostly not in the middle of one, so only the samples that
  // they have reported are expected of them.
  bool sleeps = seconds_of(config_.step_interval) > pass_.seconds;
  bool free = !waits_for_members() && (steps_locally() || (sleeps && !round_runs()));
  auto decided = free ? pass_decision{} : next_pass();
  if (!decided.begin)
    return plan_look(std::chrono::nanoseconds{
      static_cast<std::int64_t>(std::clamp(decided.wait, 0.0005, 1.0) * 1e9)});
  pass_.runs = true;
  pass_.began = now();
  run_pass pass;
  pass.in_buckets = averages().in_buckets && membership_.members().size() > 1;
  if (steps_locally())
    pass.rate = status_.learning_rate = rate_of_pass();
  send(passes_, pass);
}

/// The pass goes on: what it has computed is sent meanwhile.
void trainer::on_offered() {
  if (!pass_.runs || pass_.outdated || !at_.in_step())
    return;
  pass_.offered = true;
  flight_.pass_ended();
  report_own_progress();
  react();
}

void trainer::on_pass(const pass_done& pass) {
  pass_.runs = false;
  pass_.ended = now();
  const auto& step = pass.step;
  if (step.why.code != ec::none)
    return end_because(step.why);
  ++status_.steps;
  bool counted = std::exchange(pass_.offered, false);
  if (!counted && (step.samples > 0 || waits_for_members())) // a loop that has ended has none
    flight_.pass_ended();
  pass_.samples = step.samples;
  if (step.finite) {
    losses_.note(step.loss);
    if (averages_parameters()) {
      flight_.stepped(step.samples);
      use(step.samples);
    }
  } else {
    if (step.overflow) {
      ctx_.metrics->count_loss_scale_overflow();
    } else {
      ctx_.metrics->count_nonfinite(
        std::string_view{std::isfinite(step.loss) ? "gradient" : "loss"});
      if (auto sentence = health_.pass_not_finite(now()))
        ctx_.log->warn("{}", *sentence);
    }
    if (step.taken) {
      const auto* given = flight_.given();
      if (given != nullptr && given->is_spoiled() && (!round_runs() || stop_.begun))
        drop_contribution("not_finite"); // else its round fails here
    } else {
      drop(step.samples, "not_finite");
    }
  }
  drop(step.lost, !step.finite ? "not_finite" : stop_.begun ? "stopped" : "left_out");
  if (step.scale > 0)
    ctx_.metrics->set_loss_scale(step.scale);
  pass_.took(pass.seconds, config_.step_interval);
  if (pass.seconds > 0)
    smooth(status_.samples_per_second, static_cast<double>(step.samples) / pass.seconds);
  bool reached = own_samples() + samples_of_others() >= config_.target_batch_size;
  if (own_samples() != reports_.own_samples && !round_runs()
      && (reached || waits_for_members() || now() - reports_.to_tracker >= report_interval))
    report_own_progress();
  bool outdated = std::exchange(pass_.outdated, false) || (!at_.in_step() && !keeps_progress());
  if (outdated || (stop_.begun && !stop_.keeps)) // it belongs to a state that is replaced
    drop_accumulated(stop_.begun ? "stopped" : "left_out");
  if (!stop_.answers.empty() && saves_between_passes())
    save_and_answer();
  pass_.go_on();
  react();
}

// -- contributions --------------------------------------------------------------------------------

void trainer::begin_round(bool call) {
  contribution given;
  given.epoch = at_.epoch();
  given.from_state = at_.in_step() && !copy_waits();
  if (!given.from_state) {
    given.own = nothing();
  } else if (!averages_parameters()) {
    if (pass_.outdated) // it may have ended: nothing in the sum belongs to our state
      drop_accumulated("left_out");
    auto mean = model_->take_mean_vector(*ctx_.vectors);
    if (keeps_progress() && mean.samples > 0 && !all_finite(*mean.values)) {
      ctx_.metrics->count_nonfinite("parameters");
      ctx_.log->warn(
        "our parameters are not finite: going on from the run's; a lower --lr may help");
      (void)model_->take_back();
      drop_accumulated("not_finite");
      mean = model_->take_mean_vector(*ctx_.vectors); // nothing
    }
    given.own = with_pending_buffers(mean);
    given.fills = mean.fills;
    given.samples = mean.samples;
    given.weight = static_cast<double>(mean.samples);
    if (auto* resumes = model_->resumable())
      given.position = resumes->taken_position();
  } else {
    if (!config_.many_groups && !(given.own = copy_parameters())) {
      if (!membership_.is_member())
        return;
      given.from_state = false; // the loop is away
      given.own = nothing();
    }
    given.weight = config_.auxiliary || !given.from_state ? 0 : 1;
    status_.effective_batch = own_samples() + samples_of_others();
  }
  if (!given.own)
    return find_members_of_round(std::move(given), call);
  flight_.hold(std::move(given), status_.steps);
  begin_counting();
  send_round(flight_.send(), call);
}

/// What a peer contributes that has nothing to contribute.
std::shared_ptr<const float_vector> trainer::nothing() const {
  auto zeros = ctx_.vectors->take(averaged_->value_count());
  std::fill(zeros->begin(), zeros->end(), 0.0F);
  return zeros;
}

/// Copies what the peers average, also in the middle of a pass. Null: it cannot be read now, or it
/// cannot be averaged, and we have left the group.
std::shared_ptr<const float_vector> trainer::copy_parameters() {
  auto copy = ctx_.vectors->take(averaged_->value_count());
  auto applied = model_->copy_tensors(averaged_->indices(), *copy);
  if (!applied)
    return nullptr;
  pending_.complete(*averaged_, *applied, *copy);
  if (averaged_->counts_steps())
    write_steps(std::span{*copy}.last<step_values>(), flight_.uncounted_steps(), at_.past().steps);
  if (!all_finite(*copy) && membership_.members().size() > 1) {
    ctx_.metrics->count_nonfinite("parameters");
    distrust_own_state("our parameters are not finite: a lower --lr may help");
    return nullptr;
  }
  return copy;
}

/// In many groups, the members of a round have to be found. Training goes on meanwhile, also where
/// rounds block. The members wait for each other's values: the copy is quick, and waits for a step
/// at most.
void trainer::find_members_of_round(contribution given, bool call) {
  auto number = flight_.search(std::move(given), status_.steps);
  begin_counting();
  // What ends the round of an auxiliary is the run's next epoch, however long this one lasts. Each
  // step of the averager has a deadline of its own, and the request fails if the averager ends.
  auto patience =
    serves_groups() ? caf::duration{caf::infinite} : caf::duration{config_.averaging_timeout + 5s};
  request(peers_.averager, patience,
          find_members{at_.epoch(), call, config_.averaging_timeout, averages_parameters()})
    .then(
      [this, number](const members_found& found) {
        if (pass_.runs && !model_->copies_during_passes() && !pass_.is_late(now()))
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
  bool away = pass_.runs && !model_->copies_during_passes();
  auto own = copies && !away ? copy_parameters() : nullptr;
  if (flight_.awaits(number)) {
    bool without_us = copies && !own; // the loop is away, and the others do not wait for it
    if (without_us)
      own = nothing();
    auto of_round = flight_.found(std::move(own), !without_us);
    if (ended)
      return on_round(*found.ended);
    send_round(of_round, false);
  }
  if (!ended)
    react();
}

/// The mean with buffers that contain all changes which the worker has been asked to make.
std::shared_ptr<const float_vector>
trainer::with_pending_buffers(const learner::mean_gradient& mean) {
  if (!buffers_ || mean.samples == 0)
    return mean.values;
  pending_.forget(mean.merges);
  if (pending_.empty())
    return mean.values;
  auto own = ctx_.vectors->take(mean.values->size());
  std::copy(mean.values->begin(), mean.values->end(), own->begin());
  pending_.complete(*buffers_, mean.merges, std::span{*own}.subspan(model_->parameter_count()));
  return own;
}

void trainer::send_round(std::uint64_t number, bool call) {
  const auto& given = *flight_.given();
  average_in_group question{
    given.own,  given.weight, at_.epoch(), call, config_.averaging_timeout, averages_parameters(),
    given.fills};
  request(peers_.averager, config_.averaging_timeout + 5s, std::move(question))
    .then([this, number](const group_round& round) { on_answer(number, round); },
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
  round_report report;
  report.why = from_caf(why);
  on_round_failed(report);
  react();
}

} // namespace waggle
