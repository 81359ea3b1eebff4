#pragma once

#include <cstdint>
#include <memory>

#include "runtime/training/learner.hpp"

namespace waggle::testing {

struct toy_options {
  std::size_t parameters = 8;
  std::uint64_t micro_batch = 4;
  std::uint64_t init_seed = 7;
  std::uint64_t data_seed = 1;
  double momentum = 0.9;
};

/// Linear regression with momentum SGD: the loss of a sample (x, y) is (w·x − y)²/2. The truth is
/// the same for everybody, the samples depend on `data_seed`. Small, exact, deterministic: what
/// stands in for a model where the model is not the point.
std::unique_ptr<learner> make_toy_learner(const toy_options& options);

} // namespace waggle::testing
