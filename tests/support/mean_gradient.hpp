#pragma once

#include <vector>

#include "runtime/training/learner.hpp"

namespace waggle::testing {

/// Takes the accumulated gradient.
inline std::vector<float> mean_gradient_of(learner& model) {
  std::vector<float> mean(model.parameter_count());
  model.take_mean_gradient(mean);
  return mean;
}

} // namespace waggle::testing
