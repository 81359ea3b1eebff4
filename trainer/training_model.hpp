#pragma once

// Internal to trainer/: includes LibTorch.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/safetensors.hpp"
#include "trainer/compute_setup.hpp"

namespace waggle {

/// What a learner trains: a built-in model, or a TorchScript module. Not thread-safe.
class training_model {
public:
  using named_tensors = std::vector<std::pair<std::string, torch::Tensor>>;

  virtual ~training_model() = default;

  /// What is trained, in the order of the state's table; tied parameters once.
  [[nodiscard]] virtual named_tensors parameters() const = 0;
  /// What passes change: those that is_exchanged (buffer_values.hpp), averaged ones first.
  [[nodiscard]] virtual named_tensors buffers() const = 0;
  virtual void to(const torch::Device& device) = 0;
  virtual void train(bool on) = 0;

  /// The mean loss over a batch: a float32 scalar.
  virtual torch::Tensor loss(const batch& samples) = 0;

  struct measurement {
    double loss = 0;                    // mean
    std::optional<std::uint64_t> right; // predictions; nothing: the model does not show them
    std::uint64_t predictions = 0;
  };
  /// The same without a gradient, with the number of predictions that are right.
  virtual measurement measure(const batch& samples) = 0;
};

/// Makes the model of `config` on the CPU for data of this shape. Fails with ec::bad_config and a
/// sentence if it does not fit the data, or its file cannot be used.
result<std::shared_ptr<training_model>> make_training_model(const learner_config& config,
                                                            const sample_shape& shape);

/// Whether that can succeed. Fails as it does.
status check_training_model(const learner_config& config, const sample_shape& shape);

/// Copies `weights` (weights_of a learner with the same model) into the model.
void load_weights(const training_model& model, std::span<const float> weights);
/// Copies the weights of a checkpoint into the tensors of the model that --model names. Fails with
/// ec::bad_config and a sentence unless they are the same by name and shape.
status load_weights(const training_model::named_tensors& tensors,
                    const std::vector<named_values>& weights, const std::string& model);

/// How many of the targets have the highest score. `scores`: [predictions, classes], `targets`:
/// [predictions].
std::uint64_t count_right(const torch::Tensor& scores, const torch::Tensor& targets);

} // namespace waggle
