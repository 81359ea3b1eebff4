#pragma once

#include <memory>

#include "runtime/training/learner.hpp"
#include "runtime/training/sample_draws.hpp"

namespace waggle {

/// Makes learners whose state has the ledger of `draws`, from which the learner below draws its
/// samples; with null: `make` itself. On top of all other layers.
///
/// Adds two tensors to the state. `data/claims` (a metric) is averaged with the gradients: what
/// each member drew for its part of the mean. `data/ledger` is what sample_ledger::encode writes;
/// the end of an epoch changes it, and nothing else does. An image with an impossible value is
/// refused.
///
/// A gradient with samples that may not be claimed any more is dropped here, and reported with the
/// next pass (micro_step::lost). What is not finished when the peer stops is not kept, but drawn
/// again.
learner_factory with_ledger(learner_factory make, std::shared_ptr<sample_draws> draws);

} // namespace waggle
