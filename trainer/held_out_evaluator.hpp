#pragma once

#include "runtime/training/evaluation.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// An evaluator of the model of `config` on its `eval_data`, all of it, on the same device. Fails
/// with ec::bad_config and a sentence, as make_torch_learner does.
result<std::unique_ptr<evaluator>> make_evaluator(const learner_config& config);

} // namespace waggle
