#pragma once

#include <span>

#include "runtime/training/learner.hpp"

namespace waggle {

/// The factor by which a gradient is multiplied so that its norm (over all values) is at most
/// `norm_max`; 1 if it is not longer, or if it is not finite. In a fixed order: peers with equal
/// gradients get equal factors.
double clip_factor(std::span<const float> gradient, double norm_max);

/// Makes learners whose updates are clipped to `norm_max`; 0: not at all. The gradient that they
/// accumulate is not clipped: only the mean over all peers counts, or, if they step locally, that
/// of the micro-batch.
learner_factory clipped(learner_factory make, double norm_max);

} // namespace waggle
