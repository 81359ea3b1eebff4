#pragma once

#include <memory>

#include "runtime/training/learner.hpp"
#include "runtime/training/loss_scaler.hpp"

namespace waggle {

/// Makes learners whose updates `scale` counts, and whose own state it is. Null: `make` itself.
/// Whoever runs the passes scales the loss and notes overflows.
learner_factory with_loss_scale(learner_factory make, std::shared_ptr<loss_scaler> scale);

} // namespace waggle
