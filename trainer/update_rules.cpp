#include "trainer/update_rules.hpp"

#include <cmath>

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"

namespace waggle {

namespace {

/// Weight decay as a part of the gradient.
void add_decay(const optimizer_identity& numbers, step_tensors& v) {
  if (numbers.weight_decay != 0)
    v.gradient = v.gradient.add(v.parameters, numbers.weight_decay);
}

void step_momentum(const optimizer_identity& numbers, double lr, std::uint64_t count,
                   step_tensors& v) {
  if (numbers.momentum > 0) {
    auto& buffer = v.statistics[0];
    if (count == 1) // as torch's SGD: the first gradient is not dampened
      buffer.copy_(v.gradient);
    else
      buffer.mul_(numbers.momentum).add_(v.gradient, 1 - numbers.dampening);
    v.gradient = numbers.nesterov ? v.gradient.add(buffer, numbers.momentum) : buffer;
  }
  v.parameters.add_(v.gradient, -lr);
}

void step_sgd(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  add_decay(numbers, v);
  step_momentum(numbers, lr, count, v);
}

void step_sgdw(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  decay_directly(numbers, lr, v);
  step_momentum(numbers, lr, count, v);
}

void step_moments(const optimizer_identity& numbers, double lr, std::uint64_t count,
                  step_tensors& v) {
  update_moments(numbers, v);
  auto t = static_cast<double>(count);
  auto correction1 = 1 - std::pow(numbers.beta1, t);
  auto correction2 = 1 - std::pow(numbers.beta2, t);
  auto squares = v.statistics[1];
  if (numbers.amsgrad)
    squares = v.statistics[2].copy_(torch::maximum(v.statistics[2], squares));
  auto denominator = squares.sqrt().div_(std::sqrt(correction2)).add_(numbers.epsilon);
  v.parameters.addcdiv_(v.statistics[0], denominator, -lr / correction1);
}

void step_adam(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  add_decay(numbers, v);
  step_moments(numbers, lr, count, v);
}

void step_adagrad(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
                  step_tensors& v) {
  add_decay(numbers, v);
  auto& sum = v.statistics[0];
  sum.addcmul_(v.gradient, v.gradient, 1);
  v.parameters.addcdiv_(v.gradient, sum.sqrt().add_(numbers.epsilon), -lr);
}

void step_rmsprop(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
                  step_tensors& v) {
  add_decay(numbers, v);
  auto& squares = v.statistics[0];
  squares.mul_(numbers.smoothing).addcmul_(v.gradient, v.gradient, 1 - numbers.smoothing);
  auto variance = squares;
  if (numbers.centered) {
    auto& mean = v.statistics.back();
    mean.mul_(numbers.smoothing).add_(v.gradient, 1 - numbers.smoothing);
    // Rounding can make it negative, and the root not a number.
    variance = squares.addcmul(mean, mean, -1).clamp_min_(0);
  }
  auto denominator = variance.sqrt().add_(numbers.epsilon);
  if (numbers.momentum > 0) {
    v.statistics[1].mul_(numbers.momentum).addcdiv_(v.gradient, denominator);
    v.parameters.add_(v.statistics[1], -lr);
  } else {
    v.parameters.addcdiv_(v.gradient, denominator, -lr);
  }
}

/// Chen et al., arXiv:2302.06675.
void step_lion(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
               step_tensors& v) {
  auto& mean = v.statistics[0];
  decay_directly(numbers, lr, v);
  auto direction = mean.mul(numbers.beta1).add_(v.gradient, 1 - numbers.beta1).sign_();
  v.parameters.add_(direction, -lr);
  mean.mul_(numbers.beta2).add_(v.gradient, 1 - numbers.beta2);
}

constexpr update_rule table[] = {
  {"sgd", false, step_sgd},         {"sgdw", false, step_sgdw},
  {"adam", false, step_adam},       {"adamw", false, step_adamw},
  {"adagrad", false, step_adagrad}, {"rmsprop", false, step_rmsprop},
  {"lamb", true, step_lamb},        {"lars", true, step_lars},
  {"lion", false, step_lion},       {"adafactor", true, step_adafactor},
  {"muon", true, step_muon},
};

} // namespace

const update_rule& update_rule_named(std::string_view name) {
  const auto* found = find_named(table, name);
  WAGGLE_CHECK(found != nullptr, std::string{name});
  return *found;
}

void decay_directly(const optimizer_identity& numbers, double lr, step_tensors& v) {
  if (numbers.weight_decay != 0)
    v.parameters.mul_(1 - lr * numbers.weight_decay);
}

void update_moments(const optimizer_identity& numbers, step_tensors& v) {
  v.statistics[0].mul_(numbers.beta1).add_(v.gradient, 1 - numbers.beta1);
  v.statistics[1].mul_(numbers.beta2).addcmul_(v.gradient, v.gradient, 1 - numbers.beta2);
}

void step_adamw(const optimizer_identity& numbers, double lr, std::uint64_t count,
                step_tensors& v) {
  decay_directly(numbers, lr, v);
  step_moments(numbers, lr, count, v);
}

} // namespace waggle
