#include "runtime/training/trained_model.hpp"

namespace waggle {

const digest& trained_model::parameters() {
  if (!parameters_)
    parameters_ = learner_->parameters_digest();
  return *parameters_;
}

void trained_model::step(std::span<const float> gradient, double learning_rate,
                         const history& after) {
  if (!gradient.empty()) {
    learner_->apply(gradient, learning_rate);
    parameters_.reset();
  }
  epoch_ = epoch_.next();
  line_ = after;
}

status trained_model::load(byte_span image, const wanted_state& wanted) {
  auto state = decode_state(image);
  if (!state)
    return state.error();
  if (state->schema != learner_->schema())
    return failure{ec::schema_mismatch, "the state is of another model or optimizer"};
  if (!wanted.branch.is_zero() && state->line.branch != wanted.branch)
    return failure{ec::wrong_run, "the state is of another history than our group's"};
  if (state->epoch > wanted.epoch_max)
    return failure{ec::epoch_mismatch, "the state is of an epoch that our group has not reached"};
  if (auto loaded = learner_->load_state(state->learner); !loaded)
    return loaded;
  epoch_ = state->epoch;
  line_ = state->line;
  parameters_.reset();
  return done{};
}

model_copy trained_model::copy_state() {
  training_state state{epoch_, learner_->schema(), parameters_.value_or(digest{}), line_, {}};
  return {state, learner_->save_state(state_header_bytes)};
}

payload seal(model_copy from) {
  auto image = std::make_shared<std::vector<std::byte>>(std::move(from.image));
  seal_state(from.state, *image);
  return payload_of(std::shared_ptr<const std::vector<std::byte>>{image});
}

} // namespace waggle
