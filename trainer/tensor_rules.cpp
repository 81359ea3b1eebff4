// The update rules that need whole tensors: their lengths, rows and columns, or products.

#include <algorithm>
#include <cmath>

#include "trainer/fixed_order.hpp"
#include "trainer/update_rules.hpp"

namespace waggle {

namespace {

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
    auto polynomial = product(square, square).mul_(2.0315).add_(square, -4.7750);
    x = product(polynomial, x).add_(x, 3.4445);
  }
  return x;
}

} // namespace

/// You et al., arXiv:1904.00962, with bias correction.
void step_lamb(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  constexpr double length_max = 10'000;
  update_moments(numbers, v);
  auto t = static_cast<double>(count);
  auto rate = lr * std::sqrt(1 - std::pow(numbers.beta2, t)) / (1 - std::pow(numbers.beta1, t));
  auto direction = v.statistics[0].div(v.statistics[1].sqrt().add_(numbers.epsilon));
  if (numbers.weight_decay != 0)
    direction.add_(v.parameters, numbers.weight_decay);
  auto length = std::min(length_of(v.parameters), length_max);
  auto step = length_of(direction);
  v.parameters.add_(direction, -rate * (length > 0 && step > 0 ? length / step : 1));
}

/// You et al., arXiv:1708.03888.
void step_lars(const optimizer_identity& numbers, double lr, std::uint64_t /*count*/,
               step_tensors& v) {
  auto length = length_of(v.parameters);
  auto slope = length_of(v.gradient);
  auto trust = 1.0;
  if (length > 0 && slope > 0)
    trust = numbers.trust * length / (slope + numbers.weight_decay * length + numbers.epsilon);
  auto step = v.gradient.add(v.parameters, numbers.weight_decay).mul_(trust);
  if (numbers.momentum > 0)
    step = v.statistics[0].mul_(numbers.momentum).add_(step);
  v.parameters.add_(step, -lr);
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
    variance.mul_(1 - fresh).add_(squares, fresh);
    update = v.gradient.div(variance.sqrt());
  } else {
    auto rows = v.statistics[0].view({-1});
    auto& columns = v.statistics[1];
    rows.mul_(1 - fresh).add_(row_means(as_matrix(squares)), fresh);
    columns.mul_(1 - fresh).add_(column_means(as_matrix(squares)), fresh);
    auto mean = row_means(rows.unsqueeze(0));
    update = as_matrix(v.gradient)
               .div(rows.div(mean).sqrt_().unsqueeze(1))
               .div_(columns.sqrt().unsqueeze(0))
               .view(v.parameters.sizes());
  }
  auto size = std::max(size_min, root_mean_square(v.parameters));
  auto limit = std::max(1.0, root_mean_square(update) / update_max);
  decay_directly(numbers, lr, v);
  v.parameters.add_(update, -lr * size / limit);
}

/// Matrices by orthogonalized momentum, with steps as large as AdamW's (arXiv:2502.16982), so that
/// one learning rate serves both; the rest by AdamW.
void step_muon(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v) {
  if (v.parameters.dim() < 2)
    return step_adamw(numbers, lr, count, v);
  auto& mean = v.statistics[0];
  mean.mul_(numbers.momentum).add_(v.gradient, 1 - numbers.momentum);
  auto direction =
    numbers.nesterov ? v.gradient.mul(1 - numbers.momentum).add_(mean, numbers.momentum) : mean;
  auto matrix = direction.reshape({direction.size(0), -1});
  bool tall = matrix.size(0) > matrix.size(1);
  auto step = orthogonalized(tall ? matrix.t() : matrix);
  auto side = static_cast<double>(std::max(matrix.size(0), matrix.size(1)));
  decay_directly(numbers, lr, v);
  v.parameters.add_((tall ? step.t() : step).reshape(v.parameters.sizes()),
                    -lr * 0.2 * std::sqrt(side));
}

} // namespace waggle
