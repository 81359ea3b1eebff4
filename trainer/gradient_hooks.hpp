#pragma once

// Internal to trainer/: includes LibTorch.

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

namespace waggle {

/// Says during a backward pass which gradients are complete: those of the last layers first. Used
/// by the thread that computes, on which they are called if the parameters are on a CPU.
class gradient_hooks {
public:
  /// The parameters keep what they call, so that there is one of these for each model.
  explicit gradient_hooks(const std::vector<torch::Tensor>& parameters);

  /// `computed` receives the number of each parameter whose .grad has its gradient of this pass,
  /// a parameter that several layers share when all of them have added to it. Null: nobody does.
  void listen(std::function<void(std::size_t)> computed) { *computed_ = std::move(computed); }

private:
  std::shared_ptr<std::function<void(std::size_t)>> computed_ =
    std::make_shared<std::function<void(std::size_t)>>();
  // Hold the hooks. Nodes have other pointers in LibTorch 2.13 than in 1.13.
  std::vector<decltype(torch::autograd::impl::grad_accumulator(torch::Tensor{}))> accumulate_;
};

} // namespace waggle
