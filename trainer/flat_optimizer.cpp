#include "trainer/flat_optimizer.hpp"

#include <algorithm>
#include <cmath>

namespace waggle {

namespace {

/// 1 MiB of each vector. A multiple of the width of vector instructions, so that each value is
/// computed by the same instructions as without slices.
constexpr std::int64_t slice_values = std::int64_t{1} << 18U;

} // namespace

flat_optimizer::flat_optimizer(const learner_config& config, const torch::Tensor& like)
  : rule_(config.optimizer == "sgd"    ? rule::sgd
          : config.optimizer == "adam" ? rule::adam
                                       : rule::adamw),
    momentum_(config.momentum), beta1_(config.beta1), beta2_(config.beta2),
    epsilon_(config.epsilon), weight_decay_(config.weight_decay) {
  std::size_t count = rule_ != rule::sgd ? 2 : momentum_ > 0 ? 1 : 0;
  for (std::size_t i = 0; i < count; ++i)
    statistics_.push_back(torch::zeros_like(like));
}

void flat_optimizer::step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr) {
  torch::NoGradGuard guard;
  ++steps_;
  // All operations are element-wise, so slices give the same values. Temporary tensors are then
  // only as long as a slice, and stay in the cache.
  auto length = parameters.is_cpu() ? slice_values : parameters.numel();
  for (std::int64_t at = 0; at < parameters.numel(); at += length)
    step_slice(parameters, gradient, lr, at, std::min(length, parameters.numel() - at));
}

void flat_optimizer::step_slice(const torch::Tensor& all, const torch::Tensor& gradient, double lr,
                                std::int64_t at, std::int64_t length) {
  auto parameters = all.narrow(0, at, length);
  auto g = gradient.narrow(0, at, length);
  if (weight_decay_ != 0) {
    if (rule_ == rule::adamw)
      parameters.mul_(1 - lr * weight_decay_);
    else
      g = g.add(parameters, weight_decay_);
  }
  if (rule_ == rule::sgd) {
    if (momentum_ > 0) {
      auto velocity = statistics_[0].narrow(0, at, length);
      velocity.mul_(momentum_).add_(g);
      g = velocity;
    }
    parameters.add_(g, -lr);
    return;
  }
  auto first = statistics_[0].narrow(0, at, length);
  auto second = statistics_[1].narrow(0, at, length);
  first.mul_(beta1_).add_(g, 1 - beta1_);
  second.mul_(beta2_).addcmul_(g, g, 1 - beta2_);
  auto t = static_cast<double>(steps_);
  auto correction1 = 1 - std::pow(beta1_, t);
  auto correction2 = 1 - std::pow(beta2_, t);
  auto denominator = second.sqrt().div_(std::sqrt(correction2)).add_(epsilon_);
  parameters.addcdiv_(first, denominator, -lr / correction1);
}

} // namespace waggle
