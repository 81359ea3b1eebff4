#include "runtime/training/trained_model.hpp"

#include "runtime/training/training_state.hpp"

namespace waggle {

const digest& trained_model::parameters() {
  if (!parameters_)
    parameters_ = learner_->parameters_digest();
  return *parameters_;
}

micro_step trained_model::accumulate() {
  auto step = learner_->accumulate();
  if (step.finite)
    samples_.accumulate(step.samples);
  else
    samples_.refuse(step.samples);
  return step;
}

std::uint64_t trained_model::drop() {
  learner_->reset_accumulators();
  return samples_.drop();
}

std::uint64_t trained_model::step(std::span<const float> gradient, double learning_rate,
                                  own_samples fate) {
  learner_->apply(gradient, learning_rate);
  learner_->reset_accumulators();
  epoch_ = epoch_.next();
  changed();
  return fate == own_samples::used ? samples_.use() : samples_.drop();
}

result<std::uint64_t> trained_model::load(byte_span image) {
  auto state = decode_state(image);
  if (!state)
    return state.error();
  if (state->epoch < epoch_)
    return failure{ec::epoch_mismatch, "the state is older than ours"};
  if (state->schema != learner_->schema())
    return failure{ec::schema_mismatch, "the state is of another model or optimizer"};
  if (auto loaded = learner_->load_state(state->learner); !loaded)
    return loaded.error();
  epoch_ = state->epoch;
  changed();
  return drop();
}

const payload& trained_model::image() {
  if (image_.empty()) {
    auto bytes = learner_->save_state();
    image_ = encode_state({epoch_, learner_->schema(), parameters(), bytes.view()});
  }
  return image_;
}

status trained_model::save(checkpoint_store& checkpoints) {
  auto bytes = learner_->save_state();
  return checkpoints.save({epoch_, learner_->schema(), parameters(), bytes.view()});
}

void trained_model::changed() {
  parameters_.reset();
  image_ = {};
}

} // namespace waggle
