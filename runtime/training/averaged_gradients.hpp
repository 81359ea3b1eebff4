#pragma once

#include "runtime/training/learner.hpp"

namespace waggle {

/// Makes learners that keep the gradient of their last local step as tensors of their state, for
/// lanes that average it with the parameters (lane::gradients). Without `enabled`: `make` itself.
///
/// Tensor `gradient/w` of parameter w is the gradient that the pass gave, before it was corrected
/// or clipped. The change that a round makes to it, mean − snapshot, is the correction: it is added
/// to the gradient of the next step, and clipping applies to the sum. Invariants:
/// - Every correction enters exactly one step. Those of several rounds add up; a pass without a
/// step
///   (not finite) uses none up.
/// - A difference between peers is corrected once: see change_gradient. So the corrections that a
///   round gives to members of equal weight add up to zero, and they leave the mean of the peers'
///   gradients as it is.
/// - Gradient and correction are this peer's own. A state that is loaded empties both, whoever
/// wrote
///   it. A peer that has no gradient contributes zeros.
///
/// The learners that `make` makes step locally; otherwise the result fails with ec::bad_config.
learner_factory with_averaged_gradients(learner_factory make, bool enabled);

} // namespace waggle
