#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/training/learner.hpp"

namespace waggle::testing {

struct toy_options {
  std::size_t parameters = 8;
  std::uint64_t micro_batch = 4;
  std::uint64_t init_seed = 7;
  std::uint64_t data_seed = 1;
  double momentum = 0.9;
  bool buffer = false;     // the running mean of the samples' inputs, which passes change
  std::size_t rows = 0;    // the parameters are a matrix of so many rows; 0: a vector
  std::size_t tensors = 1; // of a vector: "weights", or "weights0", "weights1", …
  bool adam = false;       // instead of SGD
  std::shared_ptr<const bool> frozen = nullptr; // true: steps change nothing; null: never
  bool in_place = false; // passes add to the vector that the next round takes (gradient_sum)
  /// Called in every pass before it adds anything, to let time pass; empty: a pass takes no time.
  std::function<void()> during_pass = nullptr;
  /// Called in every pass whose gradient may be taken early, before each of `toy_buckets` parts of
  /// it is there; empty: no gradient is.
  std::function<void()> before_bucket = nullptr;
  /// Whether the gradient of the pass that runs is not finite; asked before its last bucket.
  std::function<bool()> spoils = nullptr;
  std::size_t* taken_early =
    nullptr; // counts the gradients that were taken before they were complete
};

inline constexpr std::size_t toy_buckets = 4;

/// Linear regression with momentum SGD, or Adam: the loss of a sample (x, y) is (w·x − y)²/2. The
/// true weights are the same for all peers; the samples depend on `data_seed`. Small, exact,
/// deterministic: for tests in which the model does not matter. Ends the process if the gradient is
/// taken at a moment at which LibTorch's learner could not give it (learner::adds_in_place).
std::unique_ptr<learner> make_toy_learner(const toy_options& options);

} // namespace waggle::testing
