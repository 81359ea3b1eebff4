#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "runtime/training/learner.hpp"

namespace waggle::testing {

/// Takes the accumulated gradient, and as many of the values behind it as fit into `out`. Returns
/// the number of its samples.
inline std::uint64_t take_mean_gradient(learner& model, std::span<float> out) {
  auto mean = model.take_mean_vector(*vector_pool::make(1));
  std::copy_n(mean.values->begin(), out.size(), out.begin());
  return mean.samples;
}

inline std::vector<float> mean_gradient_of(learner& model) {
  std::vector<float> mean(model.parameter_count());
  take_mean_gradient(model, mean);
  return mean;
}

} // namespace waggle::testing
