#pragma once

#include "runtime/data/sample_data.hpp"
#include "runtime/training/evaluation.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// An evaluator of the model of `config` on its `eval_data`, all of it, on the same device. Fails
/// with ec::bad_config and a sentence, as make_torch_learner does.
result<std::unique_ptr<evaluator>> make_evaluator(const learner_config& config);

/// What is measured on other data must be like what is trained on, which has this shape. Fails with
/// ec::bad_config and a sentence.
status check_eval_data(const learner_config& config, const sample_shape& shape);

} // namespace waggle
