#include "trainer/gradient_hooks.hpp"

#include <utility>

#include <torch/csrc/autograd/function_hook.h>

namespace waggle {

namespace {

class after_accumulation final : public torch::autograd::FunctionPostHook {
public:
  explicit after_accumulation(std::function<void()> then) : then_(std::move(then)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    then_();
    return outputs;
  }

private:
  std::function<void()> then_;
};

} // namespace

gradient_hooks::gradient_hooks(const std::vector<torch::Tensor>& parameters) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    node->add_post_hook(std::make_unique<after_accumulation>([computed = computed_, i] {
      if (*computed)
        (*computed)(i);
    }));
    accumulate_.push_back(std::move(node));
  }
}

} // namespace waggle
