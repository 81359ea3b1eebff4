#pragma once

// Internal to trainer/: includes LibTorch.

#include <memory>

#include <torch/torch.h>

#include "trainer/torch_learner.hpp"

namespace waggle {

/// A model that predicts bytes. `loss` takes windows [batch, context + 1] of int64 byte values and
/// returns the mean cross-entropy in nats.
class byte_model : public torch::nn::Module {
public:
  virtual torch::Tensor loss(const torch::Tensor& windows) = 0;
  /// The standard deviation from which a parameter that is neither a gain nor a bias is drawn.
  [[nodiscard]] virtual double initial_deviation(const std::string& name,
                                                 const torch::Tensor& parameter) const = 0;
};

/// Makes a model on the CPU, with initial parameters drawn from `config.init_seed`.
/// REQUIRES: `check_learner_config(config)` succeeded.
std::shared_ptr<byte_model> make_byte_model(const learner_config& config);

} // namespace waggle
