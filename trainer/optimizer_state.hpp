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

} // namespace waggle
