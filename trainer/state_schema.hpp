#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/training/state_table.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// The properties of an optimizer, besides the learning rate, that must be equal on all peers.
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

/// The statistics that such an optimizer keeps for each parameter, in order, with the names that
/// torch::optim uses.
std::vector<std::pair<std::string, state_tensor::kind>>
statistics_of(const optimizer_identity& optimizer);

/// Returns a table of the parameters, followed by one block per statistic for all parameters.
state_table table_of(std::vector<state_tensor> parameters, const optimizer_identity& optimizer);

/// Describes what a model with that name computes beyond what the shapes of its tensors show. Empty
/// if there is nothing.
std::string function_of(std::string_view model, std::int64_t heads);

/// A digest of the names and shapes of the tensors, `function_of` the model, and the optimizer with
/// its hyper-parameters. Peers may average and exchange state exactly if their digests are equal,
/// even if the models come from different programs.
digest schema_of(const state_table& tensors, const optimizer_identity& optimizer,
                 std::string_view function);

} // namespace waggle
