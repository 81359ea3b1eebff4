#pragma once

#include <cstddef>

#include "runtime/core/ids.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/learner.hpp"

namespace waggle {

/// 1 MiB of float32 takes about a millisecond to hash.
constexpr std::size_t sampled_values_max = 262'144;

/// What peers compare whose parameters must be equal, or so up to rounding.
struct parameter_sample {
  digest hash;             // zero: they cannot be read
  parameter_sketch sketch; // without learner::rounding
};

/// What peers that must hold equal parameters compare at this epoch. Of a small model, all
/// parameters (learner::parameters_digest). Of a larger one, a window of `values_max` values, which
/// moves on with each epoch and begins anew at the end: an update that differs shows at
/// once if it changes values of the window, and a single value once the window reaches it. Nothing
/// if the window lies in a tensor that is not in host memory and too large to copy for it.
///
/// Equal for equal parameters at equal epochs, on every device. Call it on the computing thread.
/// `hashed`: false: the hash is zero, unless it is not_finite_sample.
[[nodiscard]] parameter_sample sample_parameters(const learner& model, epoch_id epoch,
                                                 std::size_t values_max = sampled_values_max,
                                                 bool hashed = true);

/// The hash of a sample with a value that is not finite: the model is of no use, so it must not be
/// taken for the run's, however many peers hold it.
[[nodiscard]] const digest& not_finite_sample();

} // namespace waggle
