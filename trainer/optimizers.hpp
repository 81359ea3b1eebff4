#pragma once

// Internal to trainer/: includes LibTorch.

#include <memory>
#include <typeinfo>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/optimizer_table.hpp"

namespace waggle {

/// A range of all vectors of an optimizer step.
struct step_slice {
  torch::Tensor parameters;
  torch::Tensor gradient;
  std::vector<torch::Tensor> statistics; // in the order of optimizer_row::statistics
};

/// An optimizer of optimizer_table, twice: over flat tensors, as flat_optimizer uses it, and that
/// of torch::optim with its statistics, for a user's own loop.
struct torch_optimizer {
  std::string_view name;       // of its row in optimizer_table
  std::string_view class_name; // in torch::optim
  const std::type_info* type;
  /// Step number `count`, from 1 on. Element-wise, in a fixed order.
  void (*step)(const optimizer_identity& numbers, double lr, std::uint64_t count,
               step_slice& values);
  std::unique_ptr<torch::optim::Optimizer> (*make)(const optimizer_identity& numbers, double lr,
                                                   std::vector<torch::Tensor> parameters);
  /// Reads torch's options. Throws std::invalid_argument if one of them is not supported.
  optimizer_identity (*identity)(const torch::optim::OptimizerOptions& options);
  /// Statistic number `which` of a parameter. Null if it does not exist yet and `make` is false.
  torch::Tensor* (*statistic)(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                              std::size_t which, bool make);
  /// The number of steps that a parameter's statistics have accumulated, to read or to set. Null:
  /// the optimizer does not count.
  std::int64_t (*steps)(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
  void (*set_steps)(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                    std::int64_t steps);
};

/// REQUIRES: `name` is in optimizer_table.
const torch_optimizer& torch_optimizer_named(std::string_view name);
/// Throws std::invalid_argument, with a sentence, if its class is not supported.
const torch_optimizer& torch_optimizer_of(const torch::optim::Optimizer& optimizer);

} // namespace waggle
