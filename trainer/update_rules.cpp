#include "trainer/update_rules.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"
#include "trainer/fixed_order.hpp"

namespace waggle {

namespace {

/// Weight decay that does not pass through the gradient.
void decay_directly(const optimizer_identity& numbers, double lr, step_tensors& v) {
  if (numbers.weight_decay != 0)
    v.parameters.mul_(1 - lr * numbers.weight_decay);
}

/// Weight decay as a part of the gradient.
void add_decay(const optimizer_identity& numbers, double /*lr*/, step_tensors& v) {
  if (numbers.weight_decay != 0)
    v.gradient = plus_scaled(v.gradient, v.parameters, numbers.weight_decay);
}

template <auto Decay>
void step_momentum(const optimizer_identity& numbers, double lr, std::uint64_t count,
                   step_tensors& v) {
  Decay(numbers, lr, v);
  if (numbers.momentum > 0) {
    auto& buffer = v.statistics[0];
    if (count == 1) // as torch's SGD: the first gradient is not dampened
      buffer.copy_(v.gradient);
    else
      add_scaled(buffer, v.gradient, 1 - numbers.dampening, numbers.momentum);
    v.gradient = numbers.nesterov ? plus_scaled(v.gradient, buffer, numbers.momentum) : buffer;
  }
  add_scaled(v.parameters, v.gradient, -lr);
}

/// Moves the two moments (statistics 0 and 1) toward the gradient.
void update_moments(const optimizer_identity& numbers, step_tensors& v) {
  add_scaled(v.statistics[0], v.gradient, 1 - numbers.beta1, numbers.beta1);
  add_product(v.statistics[1], v.gradient, v.gradient, 1 - numbers.beta2, numbers.beta2);
}

template <auto Decay>
void step_moments(const optimizer_identity& numbers, double lr, std::uint64_t count,
                  step_tensors& v) {
  Decay(numbers, lr, v);
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

void step_adagrad(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
                  step_tensors& v) {
  add_decay(numbers, lr, v);
  auto& sum = v.statistics[0];
  add_product(sum, v.gradient, v.gradient, 1);
  v.parameters.addcdiv_(v.gradient, sum.sqrt().add_(numbers.epsilon), -lr);
}

void step_rmsprop(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
                  step_tensors& v) {
  add_decay(numbers, lr, v);
  auto& squares = v.statistics[0];
  add_product(squares, v.gradient, v.gradient, 1 - numbers.smoothing, numbers.smoothing);
  auto variance = squares;
  if (numbers.centered) {
    auto& mean = v.statistics.back();
    add_scaled(mean, v.gradient, 1 - numbers.smoothing, numbers.smoothing);
    // Rounding can make it negative, and the root not a number.
    variance = add_product(squares.clone(), mean, mean, -1).clamp_min_(0);
  }
  auto denominator = variance.sqrt().add_(numbers.epsilon);
  if (numbers.momentum > 0) {
    v.statistics[1].mul_(numbers.momentum).addcdiv_(v.gradient, denominator);
    add_scaled(v.parameters, v.statistics[1], -lr);
  } else {
    v.parameters.addcdiv_(v.gradient, denominator, -lr);
  }
}

/// Chen et al., arXiv:2302.06675.
void step_lion(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
               step_tensors& v) {
  auto& mean = v.statistics[0];
  decay_directly(numbers, lr, v);
  auto direction = add_scaled(mean.mul(numbers.beta1), v.gradient, 1 - numbers.beta1).sign_();
  add_scaled(v.parameters, direction, -lr);
  add_scaled(mean, v.gradient, 1 - numbers.beta2, numbers.beta2);
}

// -- rules for whole tensors: their lengths, rows and columns, or products ------------------------

torch::Tensor as_matrix(const torch::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// Five Newton-Schulz steps from `x`, with rows ≤ columns, toward the nearest matrix with
/// orthonormal rows. In float32. K. Jordan et al., "Muon: an optimizer for hidden layers in neural
/// networks" (2024), has the coefficients.
torch::Tensor orthogonalized(torch::Tensor x) {
  x = x.div(length_of(x) + 1e-7);
  for (int step = 0; step < 5; ++step) {
    auto square = product(x, x.t());
    auto polynomial = add_scaled(product(square, square), square, -4.7750, 2.0315);
    x = add_scaled(product(polynomial, x), x, 3.4445);
  }
  return x;
}

/// You et al., arXiv:1904.00962, with bias correction.
void step_lamb(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  constexpr double length_max = 10'000;
  update_moments(numbers, v);
  auto t = static_cast<double>(count);
  auto rate = lr * std::sqrt(1 - std::pow(numbers.beta2, t)) / (1 - std::pow(numbers.beta1, t));
  auto direction = v.statistics[0].div(v.statistics[1].sqrt().add_(numbers.epsilon));
  if (numbers.weight_decay != 0)
    add_scaled(direction, v.parameters, numbers.weight_decay);
  auto length = std::min(length_of(v.parameters), length_max);
  auto step = length_of(direction);
  add_scaled(v.parameters, direction, -rate * (length > 0 && step > 0 ? length / step : 1));
}

/// You et al., arXiv:1708.03888.
void step_lars(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
               step_tensors& v) {
  auto length = length_of(v.parameters);
  auto slope = length_of(v.gradient);
  auto trust = 1.0;
  if (length > 0 && slope > 0)
    trust = numbers.trust * length / (slope + numbers.weight_decay * length + numbers.epsilon);
  auto step = plus_scaled(v.gradient, v.parameters, numbers.weight_decay).mul_(trust);
  if (numbers.momentum > 0)
    step = v.statistics[0].mul_(numbers.momentum).add_(step);
  add_scaled(v.parameters, step, -lr);
}

/// Shazeer and Stern, arXiv:1804.04235, with the learning rate of the run relative to the size of
/// the parameters; without momentum.
void step_adafactor(const optimizer_identity& numbers, double lr, std::uint64_t count,
                    step_tensors& v) {
  constexpr double size_min = 1e-3;
  constexpr double update_max = 1;                         // root mean square
  auto fresh = std::pow(static_cast<double>(count), -0.8); // weight of the new squares
  auto squares = v.gradient.square().add_(numbers.epsilon);
  torch::Tensor update;
  if (v.statistics.size() == 1) {
    auto& variance = v.statistics[0];
    add_scaled(variance, squares, fresh, 1 - fresh);
    update = v.gradient.div(variance.sqrt());
  } else {
    auto rows = v.statistics[0].view({-1});
    auto& columns = v.statistics[1];
    add_scaled(rows, row_means(as_matrix(squares)), fresh, 1 - fresh);
    add_scaled(columns, column_means(as_matrix(squares)), fresh, 1 - fresh);
    auto mean = row_means(rows.unsqueeze(0));
    update = as_matrix(v.gradient)
               .div(rows.div(mean).sqrt_().unsqueeze(1))
               .div_(columns.sqrt().unsqueeze(0))
               .view(v.parameters.sizes());
  }
  auto size = std::max(size_min, root_mean_square(v.parameters));
  auto limit = std::max(1.0, root_mean_square(update) / update_max);
  decay_directly(numbers, lr, v);
  add_scaled(v.parameters, update, -lr * size / limit);
}

/// Matrices by orthogonalized momentum, with steps as large as AdamW's (arXiv:2502.16982), so that
/// one learning rate serves both; the rest by AdamW.
void step_muon(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  if (v.parameters.dim() < 2)
    return step_moments<decay_directly>(numbers, lr, count, v);
  auto& mean = v.statistics[0];
  add_scaled(mean, v.gradient, 1 - numbers.momentum, numbers.momentum);
  auto direction = numbers.nesterov
                     ? add_scaled(v.gradient.mul(1 - numbers.momentum), mean, numbers.momentum)
                     : mean;
  auto matrix = direction.reshape({direction.size(0), -1});
  bool tall = matrix.size(0) > matrix.size(1);
  auto step = orthogonalized(tall ? matrix.t() : matrix);
  auto side = static_cast<double>(std::max(matrix.size(0), matrix.size(1)));
  decay_directly(numbers, lr, v);
  add_scaled(v.parameters, (tall ? step.t() : step).reshape(v.parameters.sizes()),
             -lr * 0.2 * std::sqrt(side));
}

constexpr update_rule table[] = {
  {"sgd", false, step_momentum<add_decay>},
  {"sgdw", false, step_momentum<decay_directly>},
  {"adam", false, step_moments<add_decay>},
  {"adamw", false, step_moments<decay_directly>},
  {"adagrad", false, step_adagrad},
  {"rmsprop", false, step_rmsprop},
  {"lamb", true, step_lamb},
  {"lars", true, step_lars},
  {"lion", false, step_lion},
  {"adafactor", true, step_adafactor},
  {"muon", true, step_muon},
};

} // namespace

const update_rule& update_rule_named(std::string_view name) {
  const auto* found = find_named(table, name);
  WAGGLE_CHECK(found != nullptr, std::string{name});
  return *found;
}

} // namespace waggle
