#include "trainer/optimizer.hpp"

#include <cmath>
#include <exception>
#include <stdexcept>
#include <utility>

#include "actors/loop/swarm_session.hpp"
#include "runtime/training/strategy.hpp"
#include "trainer/module_state.hpp"

namespace waggle {

namespace {

const swarm& usable(const result<swarm>& joined) {
  if (!joined)
    throw std::runtime_error{joined.error().detail};
  return *joined;
}

} // namespace

named_tensors loop_parameters::parameters() const {
  return module_ != nullptr ? module_->named_parameters().pairs() : tensors_;
}

named_tensors loop_parameters::buffers() const {
  return module_ != nullptr ? module_->named_buffers().pairs() : named_tensors{};
}

optimizer::optimizer(const swarm& in, loop_parameters trained,
                     std::unique_ptr<torch::optim::Optimizer> inner, const named_tensors& extra)
  : session_(in.shared_session()), trained_(std::move(trained)),
    state_(std::make_unique<module_state>(trained_, std::move(inner),
                                          session_->given().learning_rate, extra, session_->place(),
                                          session_->settles())),
    exceptions_(std::uncaught_exceptions()) {
  auto schema = schema_of(state_->table(), state_->identity(), session_->model_function());
  port_ = std::make_shared<loop_port>(state_->table(), schema, state_->master(),
                                      session_->use_of_gradients());
  frozen_tensors frozen;
  if (session_->given().compares_frozen)
    frozen = module_state::frozen(trained_);
  if (auto started = session_->start(port_, *state_, state_->identity(), state_->learning_rate(),
                                     state_->rate_ratios(), frozen);
      !started)
    throw std::runtime_error{in_members(started.error()).detail};
}

optimizer::optimizer(const result<swarm>& joined, loop_parameters trained,
                     std::unique_ptr<torch::optim::Optimizer> inner, const named_tensors& extra)
  : optimizer(usable(joined), std::move(trained), std::move(inner), extra) {}

optimizer::~optimizer() {
  session_->stop(*state_, std::uncaught_exceptions() > exceptions_);
}

step_outcome optimizer::step(std::uint64_t samples, const torch::Tensor& loss) {
  return step(samples, loss.item<double>());
}

step_outcome optimizer::step(std::uint64_t samples, double loss) {
  ++passes_; // also if the gradient is refused, which then is in the .grad that adds up
  session_->check_samples(samples);
  state_->check_unchanged(trained_);
  if (session_->was_over())
    return last_ = step_outcome::finished;
  micro_step pass{loss, samples};
  pass.scale = unscale();
  auto gradient = state_->gradient();
  pass.finite = std::isfinite(loss);
  pass.written = state_->written();
  if (pass.scale > 0 && pass.finite) {
    pass.finite = state_->gradient_is_finite(); // it often is not
    session_->loss_scale()->note(pass, pass.scale, true);
  }
  last_ = session_->offer(
    gradient, pass, [this] { return session_->over(); }, passes_);
  if (last_ == step_outcome::stepped)
    if (auto surprise = state_->surprise())
      session_->warn(*surprise);
  return last_;
}

std::optional<double> optimizer::rate() const {
  return state_->rate_used();
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

void optimizer::keep(std::string bytes) {
  port_->keep(std::move(bytes));
}

std::string optimizer::kept() {
  port_->await_pass(*state_, [this] { return session_->over(); });
  return port_->kept();
}

void optimizer::zero_grad() {
  if (port_->adds_up())
    return;
  passes_ = 0;
  state_->inner().zero_grad();
}

void optimizer::follow(scheduler_maker make) {
  // Peers that step on their own are about an epoch apart anyway.
  std::function<std::uint64_t()> epoch;
  if (!session_->settles())
    epoch = [port = port_.get()] { return port->epoch(); };
  state_->follow(std::move(make), std::move(epoch));
}

void optimizer::with_shared_weights(const std::function<void()>& f) {
  state_->check_unchanged(trained_);
  port_->show_shared(*state_);
  try {
    f();
  } catch (...) {
    port_->show_own(*state_);
    throw;
  }
  port_->show_own(*state_);
}

torch::optim::Optimizer& optimizer::inner() {
  return state_->inner();
}

} // namespace waggle
