#include "runtime/training/trained_model.hpp"

#include <algorithm>

#include "runtime/core/try.hpp"

namespace waggle {

const digest& trained_model::parameters() {
  if (!parameters_)
    parameters_ = learner_->parameters_digest();
  return *parameters_;
}

void trained_model::step(std::span<const float> mean, double learning_rate, const history& after,
                         std::span<const float> buffers, const decided_round& by) {
  if (!mean.empty()) {
    const auto& tensors = learner_->tensors();
    auto next = [&mean](std::uint64_t count) {
      auto values = mean.first(static_cast<std::size_t>(count));
      mean = mean.subspan(values.size());
      return values;
    };
    auto behind = tensors.buffer_count() + tensors.term_count() + tensors.metric_count();
    auto gradient = next(mean.size() - std::min<std::uint64_t>(behind, mean.size()));
    auto of_passes = next(tensors.buffer_count());
    if (auto terms = next(tensors.term_count()); !terms.empty())
      learner_->settle(terms);
    learner_->at_update(epoch_);
    learner_->apply(gradient, learning_rate);
    if (!of_passes.empty())
      learner_->merge_buffers(of_passes, buffers);
    if (!mean.empty())
      learner_->take_metrics(mean, epoch_);
    parameters_.reset();
  }
  learner_->end_epoch(by);
  epoch_ = epoch_.next();
  past_ = after;
}

void trained_model::add_change(const averaged_tensors& averaged, std::span<const float> mean,
                               std::span<const float> snapshot, const history& after) {
  auto values = averaged.tensor_value_count(); // behind them, step_values may follow
  learner_->add_change(averaged.indices(), mean.first(values), snapshot.first(values));
  parameters_.reset();
  epoch_ = epoch_.next();
  past_ = after;
}

void trained_model::step_locally(double learning_rate) {
  learner_->step_locally(learning_rate);
  parameters_.reset();
}

status trained_model::load_from(const byte_source& image, const wanted_state& wanted) {
  WAGGLE_TRY(state, check_state(image));
  if (state->schema != learner_->schema())
    return failure{ec::schema_mismatch, "the state is of another model or optimizer"};
  if (!wanted.branch.is_zero() && state->past.branch != wanted.branch)
    return failure{ec::wrong_run, "the state is of another history than our group's"};
  if (state->epoch > wanted.epoch_max)
    return failure{ec::epoch_mismatch, "the state is of an epoch that our group has not reached"};
  WAGGLE_TRY(loaded, learner_->load_state_from(image, state_header_bytes));
  epoch_ = state->epoch;
  past_ = state->past;
  parameters_.reset();
  return done{};
}

result<model_copy> trained_model::copy_state(std::shared_ptr<byte_store> to) {
  WAGGLE_TRY(copied, learner_->save_state_to(*to, state_header_bytes));
  training_state state{epoch_, learner_->schema(), parameters_.value_or(digest{}), past_, {}};
  own_progress own{.own = learner_->own_state()};
  return model_copy{state, std::move(to), std::move(own)};
}

result<std::shared_ptr<const byte_source>> seal(model_copy from) {
  WAGGLE_TRY(sealed, seal_state_in(from.state, *from.image));
  return std::shared_ptr<const byte_source>{std::move(from.image)};
}

} // namespace waggle
