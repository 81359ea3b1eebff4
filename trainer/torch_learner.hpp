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
#include "runtime/training/loss_scaler.hpp"
#include "runtime/training/model_table.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/precision.hpp"
#include "runtime/training/sample_draws.hpp"

namespace waggle {

/// The model, the training data, the optimizer and the device of a learner.
struct learner_config {
  std::string model = "char-gpt"; // in model_table, or a TorchScript file (FILE.pt)
  std::int64_t layers = 2;
  std::int64_t width = 64;
  std::int64_t heads = 4;         // char-gpt
  std::int64_t context = 64;      // bytes that a prediction depends on
  std::string data = "synthetic"; // or any other data set (runtime/data/data_set.hpp)
  std::size_t token_bytes = 2;
  std::uint64_t classes = 0;          // 0: those of the data
  std::string eval_data{};            // empty: none
  std::string loss = "cross-entropy"; // of a TorchScript module without its own; or mse
  std::int64_t micro_batch = 8;
  optimizer_identity optimizer{"adamw"};
  std::string device = "auto"; // "cpu", "cuda", "cuda:N"
  /// Copies of the model that run passes side by side, each with `threads` compute threads. A pass
  /// of the learner is one pass of each.
  std::int64_t replicas = 1;
  std::vector<std::string> devices{}; // of the replicas, in turn; empty: all on `device`
  /// The optimizer and its statistics are in host memory; passes read a copy of the parameters on
  /// `device`, and can run while the optimizer steps.
  bool offload_optimizer = false;
  precision format = precision::float32;
  std::optional<loss_scale_rule> loss_scale{}; // nothing: the loss is not scaled
  bool reuse_gradient_buffers = false;         // accumulate in the .grad; see gradient_sum
  bool settles = false; // the members of a round settle the numbers of their update: gradients
  int threads = 1;
  std::uint64_t init_seed = 1; // equal on all peers of a run: all start with the same model
  std::uint64_t data_seed = 1; // different on each peer: all draw different samples
  /// Instead of random samples, those that it draws, by their number in the data.
  std::shared_ptr<sample_draws> draws{};
};

/// The number of samples of the data. Fails with ec::bad_config, also if a ledger cannot count
/// them.
result<std::uint64_t> count_samples(const learner_config& config);

model_shape shape_of(const learner_config& config);

/// Checks whether `make_torch_learner` can succeed with options that are valid
/// (check_combinations): devices, data, module. Fails with ec::bad_config and a sentence that names
/// the option and how to correct it.
status check_learner_config(const learner_config& config);

/// About the bytes of the model's parameters, without making it; 0: not known, as of options that
/// check_learner_config refuses.
std::uint64_t parameter_bytes(const learner_config& config);

/// Makes a learner that uses LibTorch. The parameters, the gradient and each optimizer statistic
/// are one flat float32 tensor each. Sets the number of compute threads of the process. Use it from
/// one thread.
result<std::unique_ptr<learner>> make_torch_learner(const learner_config& config);
/// An evaluator of the model of `config` on its `eval_data`, all of it, on the same device. Fails
/// with ec::bad_config and a sentence, as make_torch_learner does.
result<std::unique_ptr<evaluator>> make_evaluator(const learner_config& config);

} // namespace waggle
