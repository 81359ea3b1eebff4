#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/training/state_table.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// What of an optimizer all peers must have alike, besides the learning rate.
struct optimizer_identity {
  std::string kind; // "sgd", "adam" or "adamw"
  double momentum = 0;
  bool nesterov = false; // sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};
optimizer_identity identity_of(const learner_config& config);

/// What such an optimizer keeps of each parameter, in order, as torch::optim calls it.
std::vector<std::pair<std::string, state_tensor::kind>>
statistics_of(const optimizer_identity& optimizer);

/// The parameters, then each statistic of all of them.
state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer);

/// What a model of that name computes beyond what its tensors' shapes tell. Empty: nothing.
std::string function_of(std::string_view model, std::int64_t heads);

/// Equal exactly for peers that may average and exchange state, whoever wrote the model down: the
/// tensors' names and shapes, `function_of` the model, the optimizer and what it computes with.
digest schema_of(const state_table& tensors, const optimizer_identity& optimizer,
                 std::string_view function);

} // namespace waggle
