// Passes: when the next one begins, at which rate, and what becomes of its samples.

#include <algorithm>

#include "actors/training/trainer.hpp"

namespace waggle {

namespace {

constexpr auto report_interval = 2ms;

} // namespace

epoch_id trainer::epoch_of_pass() const {
  return round_runs() && !is_blocked() ? at_.epoch().next() : at_.epoch();
}

/// A peer that makes more passes than there are batches until the next round stays at the last one.
std::uint64_t trainer::batches_done() const {
  auto every = averages().due.every;
  auto passes = std::min(flight_.counts().passes, every - 1);
  const auto& at = report_.status.strategy;
  if (!at)
    return epoch_of_pass().value() * every + passes;
  // It is that of the model, which does not have the round that began last.
  bool begun = flight_.at() != flight::phase::idle || vector_.waiting() > 0;
  return at->epoch * at->batches + at->batches_done + (begun ? at->next_round : 0) + passes;
}

/// The epoch of the schedule for the next local step.
epoch_id trainer::schedule_epoch() {
  if (strategy_.schedule.counts == schedule_unit::batches)
    return epoch_id{batches_done()};
  if (strategy_.schedule.counts == schedule_unit::epochs)
    return epoch_id{report_.status.strategy.value_or(strategy_phase{}).epoch};
  return progress_.schedule_epoch(strategy_.schedule, epoch_of_pass(), own_samples(), round_runs(),
                                  now());
}

/// Of the next local step. Where an update takes many steps of each peer, a rate that rises or
/// falls steadily does so within an epoch, too.
double trainer::rate_of_pass() {
  const auto& schedule = config_.schedule;
  if (averages_parameters())
    return schedule.at(schedule_epoch());
  auto of = [](std::uint64_t part, std::uint64_t all) {
    return static_cast<double>(part) / static_cast<double>(all);
  };
  const auto& at = report_.status.strategy;
  auto counts = strategy_.schedule.counts;
  auto share = counts == schedule_unit::batches ? 0
               : counts == schedule_unit::epochs && at
                 ? of(batches_done() - at->epoch * at->batches, at->batches)
                 : of(flight_.counts().passes, averages().due.every);
  return schedule.within(schedule_epoch(), share);
}

void trainer::maybe_pass() {
  // With a second update waiting, a gradient would be two updates late.
  bool late = (config_.delay_optimizer_step && vector_.waiting() > 1) || merges_in_turn();
  // Only while a round of ours runs can the state be older than the tolerance allows: its end
  // decides how we go on.
  bool stale = config_.many_groups
               && membership_.epoch().value() > at_.epoch().value() + config_.epoch_difference_max;
  if (pass_.runs || late || !at_.in_step() || stale || config_.auxiliary || membership_.is_paused()
      || (left_.recalled == left_state::at::asked && now() < left_.patience) || !enough_peers()
      || !model_->has_samples())
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
  auto decided =
    free ? pass_decision{}
         : progress_.next_pass(own_samples(), pass_, round_runs(), ctx_.wall->now(), now());
  if (!decided.begin)
    return plan_look(std::chrono::nanoseconds{
      static_cast<std::int64_t>(std::clamp(decided.wait, 0.0005, 1.0) * 1e9)});
  pass_.runs = true;
  pass_.began = now();
  run_pass pass;
  pass.in_buckets = averages().in_buckets && membership_.members().size() > 1;
  if (steps_locally())
    pass.rate = report_.status.learning_rate = rate_of_pass();
  send(passes_, pass);
}

/// The pass goes on: what it has computed is sent meanwhile.
void trainer::on_offered() {
  if (!pass_.runs || pass_.outdated || !at_.in_step())
    return;
  if (!std::exchange(pass_.counted, true))
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
  if (auto sentence = report_.end_pass(step, pass.seconds, now()))
    ctx_.log->warn("{}", *sentence);
  if (!step.left_out.empty())
    ctx_.log_caused("data", now(), spdlog::level::warn, "left out: " + step.left_out);
  bool counted = std::exchange(pass_.counted, false);
  if (!counted && (step.samples > 0 || waits_for_members())) // a loop that has ended has none
    flight_.pass_ended();
  pass_.samples = step.samples;
  if (step.finite && averages_parameters()) {
    flight_.stepped(step.samples);
    report_.use(step.samples, now());
  } else if (!step.finite && step.taken) {
    const auto* given = flight_.given();
    if (given != nullptr && given->is_spoiled() && (!round_runs() || stop_.begun))
      drop_contribution("not_finite"); // else its round fails here
  } else if (!step.finite) {
    report_.drop(step.samples, "not_finite");
  }
  report_.drop(step.lost, !step.finite ? "not_finite" : stop_.begun ? "stopped" : "left_out");
  pass_.took(pass.seconds, config_.step_interval);
  bool reached = own_samples() + samples_of_others() >= config_.target_batch_size;
  if (own_samples() != reported_.own_samples && !round_runs()
      && (reached || waits_for_members() || now() - reported_.to_tracker >= report_interval))
    report_own_progress();
  bool outdated = std::exchange(pass_.outdated, false) || (!at_.in_step() && !keeps_progress());
  if (outdated || (stop_.begun && !stop_.keeps)) // it belongs to a state that is replaced
    drop_accumulated(stop_.begun ? "stopped" : "left_out");
  if (!stop_.answers.empty() && saves_between_passes())
    save_and_answer();
  pass_.go_on();
  react();
}

} // namespace waggle
