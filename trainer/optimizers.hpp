#pragma once

// Internal to trainer/: includes LibTorch.

#include <memory>
#include <optional>
#include <span>
#include <typeinfo>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/optimizer_table.hpp"

namespace waggle {

/// How an optimizer counts the steps that a parameter's statistics have
/// accumulated: to read and to set. Null: it does not count.
struct counted_state {
  std::int64_t (*steps)(torch::optim::Optimizer& optimizer,
                        const torch::Tensor& parameter) = nullptr;
  void (*set_steps)(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                    std::int64_t steps) = nullptr;
};

/// A class of optimizers whose statistics are known, so that its steps can be those of a peer: one
/// of torch::optim, or rule_optimizer.
struct torch_optimizer {
  std::string_view name;       // of its row in optimizer_table; empty: any of them
  std::string_view class_name; // in torch::optim; empty: rule_optimizer
  const std::type_info* type;
  std::unique_ptr<torch::optim::Optimizer> (*make)(const optimizer_identity& numbers, double lr,
                                                   std::vector<torch::Tensor> parameters);
  /// Reads the options. Throws std::invalid_argument if one of them is not supported.
  optimizer_identity (*identity)(const torch::optim::OptimizerOptions& options);
  /// Writes what `identity` reads.
  void (*set_numbers)(torch::optim::OptimizerOptions& options, const optimizer_identity& numbers);
  /// Statistic number `which` of a parameter. Null if it does not exist yet and `make` is false.
  torch::Tensor* (*statistic)(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                              std::size_t which, bool make);
  counted_state counter;
};

/// The numbers of a parameter group that rounds settle, in the order of settled_numbers.
std::vector<double> numbers_in(const torch_optimizer& kind,
                               const torch::optim::OptimizerOptions& options);
/// Replaces those that are given. Below 10⁻⁴⁴ a number loses digits on its way: then it stays.
void set_numbers_in(const torch_optimizer& kind, torch::optim::OptimizerOptions& options,
                    std::span<const std::optional<double>> numbers);

/// That of torch::optim, or a rule_optimizer if it has none like it.
std::unique_ptr<torch::optim::Optimizer>
make_optimizer(const optimizer_identity& numbers, double lr, std::vector<torch::Tensor> parameters);
/// Throws std::invalid_argument, with a sentence, if its class is not supported.
const torch_optimizer& torch_optimizer_of(const torch::optim::Optimizer& optimizer);

} // namespace waggle
