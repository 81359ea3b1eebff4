#pragma once

// Internal to trainer/: includes LibTorch.

#include <memory>

#include <torch/torch.h>
#include <torch/version.h>

namespace waggle {

/// What an optimizer keeps for a parameter. Null if there is nothing yet and `make` is false.
template <class State>
State* state_in(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, bool make) {
#if TORCH_VERSION_MAJOR > 1
  auto key = static_cast<void*>(parameter.unsafeGetTensorImpl());
#else
  auto key = c10::guts::to_string(parameter.unsafeGetTensorImpl());
#endif
  auto found = optimizer.state().find(key);
  if (found == optimizer.state().end() && make)
    found = optimizer.state().emplace(key, std::make_unique<State>()).first;
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

/// Adds a group with its options as they are. LibTorch 2.13 would replace those that it does not
/// know, and those that are the defaults of their type, by the optimizer's.
inline void add_group(torch::optim::Optimizer& to, const torch::optim::OptimizerParamGroup& group) {
  to.add_param_group(torch::optim::OptimizerParamGroup{group.params()});
  if (group.has_options())
    to.param_groups().back().set_options(group.options().clone());
}

} // namespace waggle
