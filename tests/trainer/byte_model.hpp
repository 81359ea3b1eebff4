#pragma once

#include <memory>

#include <torch/torch.h>

#include "trainer/compute_setup.hpp"
#include "trainer/models.hpp"

namespace waggle {

/// A built-in model for text, for plain loops to compare with.
inline std::shared_ptr<classifier> make_byte_model(const learner_config& config) {
  return make_classifier(config, sample_shape{});
}

/// The mean cross-entropy in nats.
inline torch::Tensor loss_of(classifier& model, const batch& samples) {
  return torch::nn::functional::cross_entropy(model.logits(samples.inputs),
                                              model.predicted(samples.targets));
}

/// The same over windows [batch, context + 1] of int64 values.
inline torch::Tensor loss_of(classifier& model, const torch::Tensor& windows) {
  auto context = windows.size(1) - 1;
  return loss_of(model, batch{windows.narrow(1, 0, context), windows.narrow(1, 1, context)});
}

} // namespace waggle
