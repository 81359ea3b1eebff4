#pragma once

#include <memory>

#include <torch/torch.h>

namespace waggle::testing {

struct two_layers : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 3));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(3, 3));
};

inline std::unique_ptr<torch::optim::Optimizer> adamw_with_groups(two_layers& m, double of_matrices,
                                                                  double of_vectors) {
  auto with = [](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
      torch::optim::AdamWOptions(1e-2).weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{m.first->weight, m.second->weight},
                      with(of_matrices));
  groups.emplace_back(std::vector<torch::Tensor>{m.first->bias, m.second->bias}, with(of_vectors));
  return std::make_unique<torch::optim::AdamW>(groups, torch::optim::AdamWOptions(1e-2));
}

} // namespace waggle::testing
