#include "trainer/flat_optimizer.hpp"

#include <algorithm>

#include "runtime/core/check.hpp"
#include "trainer/state_schema.hpp"

namespace waggle {

namespace {

/// 1 MiB of each vector. A multiple of the width of vector instructions, so that each value is
/// computed by the same instructions as without slices.
constexpr std::int64_t slice_values = std::int64_t{1} << 18U;

} // namespace

flat_optimizer::flat_optimizer(const learner_config& config, const torch::Tensor& like)
  : rule_(torch_optimizer_named(config.optimizer)), numbers_(identity_of(config)) {
  const auto* row = find_optimizer(config.optimizer);
  WAGGLE_CHECK(row != nullptr, config.optimizer);
  for (auto count = row->statistics(numbers_).size(); count > 0; --count)
    statistics_.push_back(torch::zeros_like(like));
}

void flat_optimizer::step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr) {
  torch::NoGradGuard guard;
  ++steps_;
  // All operations are element-wise, so slices give the same values. Temporary tensors are then
  // only as long as a slice, and stay in the cache.
  auto length = parameters.is_cpu() ? slice_values : parameters.numel();
  for (std::int64_t at = 0; at < parameters.numel(); at += length) {
    auto part = [&](const torch::Tensor& all) {
      return all.narrow(0, at, std::min(length, parameters.numel() - at));
    };
    step_slice values{part(parameters), part(gradient), {}};
    for (const auto& statistic : statistics_)
      values.statistics.push_back(part(statistic));
    rule_.step(numbers_, lr, steps_, values);
  }
}

} // namespace waggle
