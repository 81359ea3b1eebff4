// A round from the trainer's side: what this peer contributes, when it is copied, and how it is
// sent. trainer_epoch.cpp decides when a round begins, and uses its result.

#include <algorithm>

#include "actors/guard.hpp"
#include "actors/training/trainer.hpp"
#include "runtime/averaging/part_reducer.hpp"
#include "runtime/training/resumable_learner.hpp"

namespace waggle {

void trainer::begin_round(bool call) {
  contribution given;
  given.epoch = at_.epoch();
  given.from_state = at_.in_step();
  if (!given.from_state) {
    auto zeros = ctx_.vectors->take(averaged_->value_count());
    std::fill(zeros->begin(), zeros->end(), 0.0F);
    given.own = std::move(zeros);
  } else if (!averages_parameters()) {
    if (pass_outdated_) // it may have ended: nothing in the sum belongs to our state
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
    given.samples = mean.samples;
    given.weight = static_cast<double>(mean.samples);
    if (auto* resumes = model_->resumable())
      given.position = resumes->taken_position();
  } else {
    if (!config_.many_groups && !copy_parameters(given))
      return;
    given.weight = config_.auxiliary ? 0 : 1;
    status_.effective_batch = own_samples() + samples_of_others();
  }
  ledger_.add(given.samples);
  (void)ledger_.begin(only_lane, status_.steps, at_.epoch().value());
  given.stepped = stepped_;
  given.passes = passes_ended_;
  given_ = std::move(given);
  begin_counting();
  if (given_->own)
    send_round(call);
  else
    find_members_of_round(call);
}

/// Copies what the peers average, also in the middle of a pass. False: it cannot be averaged.
bool trainer::copy_parameters(contribution& given) {
  auto copy = ctx_.vectors->take(averaged_->value_count());
  auto applied = model_->copy_tensors(averaged_->indices(), *copy);
  pending_.complete(*averaged_, applied, *copy);
  given.steps = uncounted_steps_;
  if (averaged_->counts_steps())
    write_steps(std::span{*copy}.last<step_values>(), given.steps, at_.past().steps);
  if (!all_finite(*copy) && group_.members.size() > 1) {
    ctx_.metrics->count_nonfinite("parameters");
    distrust_own_state("our parameters are not finite: a lower --lr may help");
    return false;
  }
  given.own = std::move(copy);
  return true;
}

/// In many groups, the members of a round have to be found. Training goes on meanwhile, also where
/// rounds block. The members wait for each other's values: the copy is quick, and waits for a step
/// at most.
void trainer::find_members_of_round(bool call) {
  called_ = false;
  given_->in_round = given_->searches = true;
  auto number = ++rounds_;
  // What ends the round of an auxiliary is the run's next epoch, however long this one lasts. Each
  // step of the averager has a deadline of its own, and the request fails if the averager ends.
  auto patience =
    serves_groups() ? caf::duration{caf::infinite} : caf::duration{config_.averaging_timeout + 5s};
  request(peers_.averager, patience,
          find_members{at_.epoch(), call, config_.averaging_timeout, averages_parameters()})
    .then(
      [this, number](const members_found& found) {
        if (number != rounds_)
          return;
        given_->searches = false;
        if (found.ended) {
          if (found.ended->report.values && !copy_parameters(*given_)) // what the mean replaces
            return;
          return on_round(*found.ended);
        }
        if (copy_parameters(*given_))
          send_round(false);
        react();
      },
      [this, number](const caf::error& why) { on_no_answer(number, why); });
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

void trainer::send_round(bool call) {
  called_ = false;
  given_->in_round = true;
  average_in_group question{
    given_->own,          given_->weight, at_.epoch(), call, config_.averaging_timeout,
    averages_parameters()};
  auto number = ++rounds_;
  request(peers_.averager, config_.averaging_timeout + 5s, std::move(question))
    .then(
      [this, number](const group_round& round) {
        if (number == rounds_)
          on_round(round);
      },
      [this, number](const caf::error& why) { on_no_answer(number, why); });
}

/// The averager did not take part in our round.
void trainer::on_no_answer(std::uint64_t number, const caf::error& why) {
  if (number != rounds_)
    return;
  round_report report;
  report.why = from_caf(why);
  on_round_failed(report);
  react();
}

} // namespace waggle
