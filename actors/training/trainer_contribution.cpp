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
    given.samples = mean.samples;
    given.weight = static_cast<double>(mean.samples);
    if (auto* resumes = model_->resumable())
      given.position = resumes->taken_position();
  } else {
    if (!config_.many_groups && !(given.own = copy_parameters()))
      return;
    given.weight = config_.auxiliary ? 0 : 1;
    status_.effective_batch = own_samples() + samples_of_others();
  }
  if (!given.own)
    return find_members_of_round(std::move(given), call);
  flight_.hold(std::move(given), status_.steps);
  begin_counting();
  send_round(flight_.send(), call);
}

/// Copies what the peers average, also in the middle of a pass. Null: it cannot be averaged.
std::shared_ptr<const float_vector> trainer::copy_parameters() {
  auto copy = ctx_.vectors->take(averaged_->value_count());
  auto applied = model_->copy_tensors(averaged_->indices(), *copy);
  pending_.complete(*averaged_, applied, *copy);
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
        if (!flight_.awaits(number))
          return;
        bool ended = found.ended.has_value();
        // If it has ended: what the mean replaces.
        auto own = ended && !found.ended->report.values ? nullptr : copy_parameters();
        if (flight_.awaits(number)) {
          auto of_round = flight_.found(std::move(own));
          if (ended)
            return on_round(*found.ended);
          send_round(of_round, false);
        }
        if (!ended)
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

void trainer::send_round(std::uint64_t number, bool call) {
  const auto& given = *flight_.given();
  average_in_group question{
    given.own, given.weight, at_.epoch(), call, config_.averaging_timeout, averages_parameters()};
  request(peers_.averager, config_.averaging_timeout + 5s, std::move(question))
    .then(
      [this, number](const group_round& round) {
        if (flight_.awaits(number))
          on_round(round);
      },
      [this, number](const caf::error& why) { on_no_answer(number, why); });
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
