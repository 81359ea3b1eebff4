#pragma once

// Includes LibTorch.

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/optimizer_table.hpp"
#include "trainer/update_rules.hpp"

namespace waggle {

/// The rate and the numbers of a parameter group. Its tensors decay alike, also vectors: those that
/// should not are a group of their own.
struct rule_options : torch::optim::OptimizerCloneableOptions<rule_options> {
  rule_options(optimizer_identity optimizer, double rate)
    : numbers(std::move(optimizer)), lr(rate) {
    numbers.decay_vectors = true;
  }
  [[nodiscard]] double get_lr() const override { return lr; }
  void set_lr(const double rate) override { lr = rate; }

  optimizer_identity numbers;
  double lr;
};

/// What an optimizer keeps for a parameter, in the order of optimizer_row::statistics.
struct rule_state : torch::optim::OptimizerCloneableParamState<rule_state> {
  std::vector<torch::Tensor> statistics;
  TORCH_ARG(std::int64_t, step) = 0;
};

/// Any optimizer of optimizer_table with LibTorch's interface, for float32 tensors: those that
/// torch::optim does not have, and the others in a fixed order of operations, which gives equal
/// bytes on every CPU.
///
///     auto lion = std::make_unique<waggle::rule_optimizer>(
///       net->parameters(), waggle::rule_options{waggle::identity_with("lion", {{"beta1", 0.95}}),
///       1e-4});
///
/// Parameters, gradients and statistics that are neighbours in memory are treated at once if the
/// rule is element-wise; on a CPU in slices, so that temporary tensors do not have their size.
class rule_optimizer final : public torch::optim::Optimizer {
public:
  /// All groups have the same optimizer with the same switches.
  rule_optimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 const rule_options& defaults)
    : Optimizer(std::vector<torch::optim::OptimizerParamGroup>{},
                std::make_unique<rule_options>(defaults)) {
    for (const auto& group : groups)
      add_param_group(group);
  }
  rule_optimizer(const std::vector<torch::Tensor>& parameters, const rule_options& defaults)
    : Optimizer({torch::optim::OptimizerParamGroup{parameters}},
                std::make_unique<rule_options>(defaults)) {}
  /// Each parameter is a group, so that rounds can settle its numbers; as
  /// optimizer_identity::decay_vectors says, vectors do not decay.
  static std::unique_ptr<rule_optimizer> of_each(const std::vector<torch::Tensor>& parameters,
                                                 const optimizer_identity& numbers, double lr);

  /// In place of that of Optimizer, which gives the group the defaults instead of its options in
  /// LibTorch 2.13: call this one.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);
  torch::Tensor step(LossClosure closure = nullptr) override;
  /// Made of zeros if there is none yet.
  rule_state& state_of(const torch::Tensor& parameter);
  /// Refused: checkpoints of the run have the statistics.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

private:
  /// Tensors to which the rule is applied at once: the first ones of neighbours.
  struct piece {
    const rule_options* how;
    std::int64_t count; // of steps, this one included
    step_tensors first;
    step_tensors last;
    std::int64_t values;
  };
  [[nodiscard]] static bool continues(const piece& all, const piece& next);
  static void apply(const piece& of);
};

} // namespace waggle
