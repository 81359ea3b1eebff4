#include "trainer/optimizer.hpp"

#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "actors/loop/swarm_session.hpp"
#include "trainer/module_state.hpp"

namespace waggle {

namespace {

const swarm& usable(const result<swarm>& joined) {
  if (!joined)
    throw std::runtime_error{joined.error().detail};
  return *joined;
}

} // namespace

optimizer::optimizer(const swarm& in, torch::nn::Module& module,
                     std::unique_ptr<torch::optim::Optimizer> inner, const named_tensors& extra)
  : session_(in.shared_session()), module_(module),
    state_(std::make_unique<module_state>(module, std::move(inner), session_->given().learning_rate,
                                          extra, session_->place())),
    exceptions_(std::uncaught_exceptions()) {
  auto schema = schema_of(state_->table(), state_->identity(), session_->model_function());
  port_ = std::make_shared<loop_port>(state_->table(), schema, state_->master());
  if (auto started =
        session_->start(port_, state_->identity(), state_->learning_rate(), state_->rate_ratios());
      !started)
    throw std::runtime_error{started.error().detail};
}

optimizer::optimizer(const result<swarm>& joined, torch::nn::Module& module,
                     std::unique_ptr<torch::optim::Optimizer> inner, const named_tensors& extra)
  : optimizer(usable(joined), module, std::move(inner), extra) {}

optimizer::~optimizer() {
  session_->stop(*state_, std::uncaught_exceptions() > exceptions_);
}

step_outcome optimizer::step(std::uint64_t samples, const torch::Tensor& loss) {
  return step(samples, loss.item<double>());
}

step_outcome optimizer::step(std::uint64_t samples, double loss) {
  if (auto usable = session_->check_samples(samples); !usable)
    throw std::invalid_argument{usable.error().detail};
  state_->check_unchanged(module_);
  if (session_->was_over())
    return last_ = step_outcome::finished;
  micro_step pass{loss, samples};
  pass.scale = unscale();
  auto gradient = state_->gradient();
  pass.finite = std::isfinite(loss) && state_->gradient_is_finite();
  bool too_large = !pass.finite && std::isfinite(loss) && pass.scale > loss_scaler::scale_min;
  pass.overflow = too_large && session_->loss_scale()->on_overflow(pass.scale);
  auto before = port_->samples().outdated;
  last_ = port_->offer(*state_, gradient, pass, [this] { return session_->over(); });
  session_->count_outdated(port_->samples().outdated - before);
  return last_;
}

torch::Tensor optimizer::scaled(const torch::Tensor& loss) {
  const auto& scale = session_->loss_scale();
  if (!scale)
    return loss;
  if (!scale_)
    scale_ = scale->scale();
  // Not as float16, which has no 65536.
  return *scale_ == 1 ? loss : loss.to(torch::kFloat32) * *scale_;
}

/// Returns the scale of the gradients so far; 0: there is no scale.
double optimizer::unscale() {
  if (!session_->loss_scale())
    return 0;
  if (!scale_)
    throw std::invalid_argument{"with loss-scale, gradients must be those of the scaled loss: call "
                                "backward on optimizer::scaled(loss) before each step"};
  auto scale = *std::exchange(scale_, std::nullopt);
  state_->unscale_gradients(scale);
  return scale;
}

void optimizer::zero_grad() {
  state_->inner().zero_grad();
}

torch::optim::Optimizer& optimizer::inner() {
  return state_->inner();
}

} // namespace waggle
