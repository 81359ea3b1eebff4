#pragma once

#include <memory>
#include <optional>
#include <span>

#include "runtime/training/learner.hpp"
#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/sample_draws.hpp"

// What options put on top of a learner (learner_layer.hpp), from the lowest layer to the highest.
// The layer of a strategy is between with_averaged_gradients and with_plateau.
namespace waggle {

/// Makes learners whose updates `scale` counts, and whose own state it is. Null: `make` itself.
/// Whoever runs the passes scales the loss and notes overflows.
learner_factory with_loss_scale(learner_factory make, std::shared_ptr<loss_scaler> scale);

/// The factor by which a gradient is multiplied so that its norm (over all values) is at most
/// `norm_max`; 1 if it is not longer, or if it is not finite. In a fixed order: peers with equal
/// gradients get equal factors.
double clip_factor(std::span<const float> gradient, double norm_max);

/// Makes learners whose updates are clipped to `norm_max`; 0: not at all. The gradient that they
/// accumulate is not clipped: only the mean over all peers counts, or, if they step locally, that
/// of the micro-batch.
learner_factory clipped(learner_factory make, double norm_max);

/// Makes learners that keep the gradient of their last local step as tensors of their state, for
/// lanes that average it with the parameters (lane::gradients). Without `enabled`: `make` itself.
///
/// Tensor `gradient/w` of parameter w is the gradient that the pass gave, before it was corrected
/// or clipped. The change that a round makes to it, mean − snapshot, is the correction: it is added
/// to the gradient of the next step, and clipping applies to the sum. Invariants:
/// - Every correction enters exactly one step. Those of several rounds add up; a pass without a
///   step (not finite) uses none up.
/// - A difference between peers is corrected once: see change_gradient. So the corrections that a
///   round gives to members of equal weight add up to zero, and they leave the mean of the peers'
///   gradients as it is.
/// - Gradient and correction are this peer's own. A state that is loaded empties both, whoever
///   wrote it. A peer that has no gradient contributes zeros.
///
/// The learners that `make` makes step locally; otherwise the result fails with ec::bad_config.
learner_factory with_averaged_gradients(learner_factory make, bool enabled);

/// Makes learners whose learning rate the schedule `plateau` lowers; without a rule: `make` itself.
///
/// Adds two tensors to the state: `schedule/loss` (a metric), which is averaged with the gradients,
/// and `schedule/plateau` (plateau::encode). See "Plateau" in README.md. An image with an
/// impossible value is refused (learner::check_values).
///
/// The gradient may be taken while a pass runs on another thread. Nothing waits for a loss: while
/// the pass is in the gradient and its loss is not known, `waits_for_pass` says that the pass is
/// about to end. If no loss is known, because samples were lost, the last one is contributed again,
/// or, before the first one, plateau::unknown_loss.
///
/// The learners do not step locally: each peer would have a rate of its own.
learner_factory with_plateau(learner_factory make, std::optional<plateau_rule> rule);

/// Makes learners whose state has the ledger of `draws`, from which the learner below draws its
/// samples; with null: `make` itself. On top of all other layers.
///
/// Adds two tensors to the state: `data/claims` (a metric), and `data/ledger`
/// (sample_ledger::encode). See "Passes over the data" in README.md. An image with an impossible
/// value is refused. A gradient with samples that may not be claimed any more is dropped here, and
/// reported with the next pass (micro_step::lost).
///
/// `progress`: of learners that give what they have learned since the run's anchor.
learner_factory with_ledger(learner_factory make, std::shared_ptr<sample_draws> draws,
                            bool progress = false);

} // namespace waggle
