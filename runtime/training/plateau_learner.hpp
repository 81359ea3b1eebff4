#pragma once

#include <optional>

#include "runtime/training/learner.hpp"
#include "runtime/training/plateau.hpp"

namespace waggle {

/// Makes learners whose learning rate the schedule `plateau` lowers; without a rule: `make` itself.
///
/// Adds two tensors to the state. `schedule/loss` (a metric) is averaged with the gradients: this
/// peer contributes the mean loss of the samples in its gradient, so the mean of a round is that of
/// all its samples. `schedule/plateau` is what `plateau::encode` writes. It changes with each
/// update that is applied, and by nothing else, so peers in the same state apply the next update
/// with the same rate. An image with an impossible value is refused (learner::check_values).
///
/// The gradient may be taken while a pass runs on another thread. Nothing waits for a loss: while
/// the pass is in the gradient and its loss is not known, `waits_for_pass` says that the pass is
/// about to end. If no loss is known, because samples were lost, the last one is contributed again,
/// or, before the first one, plateau::unknown_loss.
///
/// The learners do not step locally: each peer would have a rate of its own.
learner_factory with_plateau(learner_factory make, std::optional<plateau_rule> rule);

} // namespace waggle
