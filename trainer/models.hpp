#pragma once

// Internal to trainer/: includes LibTorch.

#include <memory>

#include <torch/torch.h>

#include "runtime/data/sample_data.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// A built-in model, which tells classes apart: bytes, tokens or labels.
class classifier : public torch::nn::Module {
public:
  /// The scores of the classes, float32 [predictions, classes]. Inputs: int64 [batch, context] of
  /// text or tokens; float32 [batch, channels, rows, columns], from 0 to 1, of images.
  virtual torch::Tensor logits(const torch::Tensor& inputs) = 0;
  /// Of int64 targets [batch, context] or [batch], those that `logits` predicts: [predictions].
  [[nodiscard]] virtual torch::Tensor predicted(const torch::Tensor& targets) const {
    return targets.reshape({-1});
  }
  /// The standard deviation from which a parameter that is neither a gain nor a bias is drawn.
  [[nodiscard]] virtual double initial_deviation(const std::string& name,
                                                 const torch::Tensor& parameter) const = 0;
};

/// The number of its parameters, without making it. REQUIRES: as for make_classifier.
std::uint64_t parameter_count(const learner_config& config, const sample_shape& shape);

/// Makes a model on the CPU for data of this shape, with initial parameters drawn from
/// `config.init_seed`. REQUIRES: `check_learner_config(config)` succeeded.
std::shared_ptr<classifier> make_classifier(const learner_config& config,
                                            const sample_shape& shape);

} // namespace waggle
