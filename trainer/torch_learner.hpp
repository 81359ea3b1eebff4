#pragma once

// No torch type leaves this folder, because LibTorch's headers take twenty seconds to compile.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/training/evaluation.hpp"
#include "runtime/training/learner.hpp"
#include "runtime/training/learner_options.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/sample_draws.hpp"

namespace waggle {

/// The model, the training data, the optimizer and the device of a learner.
struct learner_config : learner_options {
  optimizer_identity optimizer{"adamw"};
  bool settles = false; // the members of a round settle the numbers of their update: gradients
  std::uint64_t init_seed = 1; // equal on all peers of a run: all start with the same model
  std::uint64_t data_seed = 1; // different on each peer: all draw different samples
  /// Instead of random samples or blocks, those that it draws, by their number in the data.
  std::shared_ptr<sample_draws> draws{};
  /// Of data in blocks, a pass weighs at most as so many samples.
  std::uint64_t pass_weight_max = sample_ledger::samples_max;
};

/// The number of samples of the data, or of its blocks. Fails with ec::bad_config, also if a ledger
/// cannot count them.
result<std::uint64_t> count_samples(const learner_config& config);

/// Checks whether `make_torch_learner` can succeed with options that are valid
/// (check_combinations): devices, data, module. Fails with ec::bad_config and a sentence that names
/// the option and how to correct it.
status check_learner_config(const learner_config& config);

/// Makes a learner that uses LibTorch. The parameters, the gradient and each optimizer statistic
/// are one flat float32 tensor each. Sets the number of compute threads of the process. Use it from
/// one thread.
result<std::unique_ptr<learner>> make_torch_learner(const learner_config& config);
/// An evaluator of the model of `config` on its `eval_data`, all of it, on the same device. Fails
/// with ec::bad_config and a sentence, as make_torch_learner does.
result<std::unique_ptr<evaluator>> make_evaluator(const learner_config& config);

} // namespace waggle
