// How a trainer stops, and continues with what the process before it had not finished.
//
//   stop ─► keep, or drop and count ─► (the running pass ends) ─► save_checkpoint ─► answers
//   model_ready ─► the round is run again; the accumulated gradient is in the model

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/training/resumable_learner.hpp"

namespace waggle {

/// The samples of an unfinished epoch, from the checkpoint from which the model resumed.
void trainer::take_over(const model_ready& ready) {
  auto drop = [this](std::uint64_t samples) {
    flight_.refuse(samples);
    count({0, samples}, "stopped");
  };
  drop(ready.lost_samples);
  if (steps_locally())
    flight_.resume({ready.local_samples, ready.local_passes}, ready.uncounted_steps);
  // They are of no use to another strategy, or after the last epoch.
  if (averages_parameters() || config_.auxiliary || done())
    return drop(model_->drop_gradient() + ready.pending_samples);
  if (!ready.pending)
    return;
  contribution given;
  given.epoch = at_.epoch();
  given.own = ready.pending;
  given.samples = ready.pending_samples;
  given.weight = static_cast<double>(given.samples);
  given.from_state = true;
  given.resumed = true;
  given.position = ready.pending_position;
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
  if (!pass_.runs || !(config_.delay_optimizer_step || steps_locally())) // otherwise see on_pass
    save_and_answer();
  return promise;
}

/// Prepares the last checkpoint: its state, and the samples that are in no state yet. They are kept
/// if this peer's own state is the one to which they belong; otherwise they are dropped.
void trainer::keep_unfinished() {
  stop_.keeps = config_.checkpoints && !averages_parameters() && !config_.auxiliary && at_.in_step()
                && !loads() && !(pass_.runs && pass_.outdated) && model_->resumable() != nullptr;
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
  save_checkpoint last;
  last.stops = true;
  if (steps_locally()) {
    last.local_samples = flight_.counts().samples;
    last.local_passes = flight_.counts().passes;
    last.uncounted_steps = flight_.uncounted_steps();
  }
  if (const auto* given = flight_.given()) {
    last.pending = given->own;
    last.pending_samples = given->samples;
    last.pending_position = given->position;
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
  request(worker_, config_.sync_timeout, std::move(last))
    .then([answer](const state_snapshot& made) { answer(made.kept); },
          [this, answer](const caf::error& why) {
            if (config_.checkpoints)
              ctx_.log->warn("no checkpoint was made at the stop: {}", to_string(from_caf(why)));
            answer(false);
          });
}

} // namespace waggle
