#pragma once

// Internal to trainer/.

#include <string>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/state_table.hpp"
#include "trainer/update_rules.hpp"

namespace waggle {

/// An optimizer of optimizer_table over one flat parameter tensor (tests compare it with PyTorch).
/// The statistics are one flat tensor, too, so they are sent and saved without conversion. All
/// operations are in a fixed order: equal inputs give equal bytes.
class flat_optimizer {
public:
  /// `tensors`: `table_of` the parameters and this optimizer. `like`: a tensor on the device of the
  /// parameters. The statistics begin as zeros.
  flat_optimizer(const optimizer_identity& numbers, const state_table& tensors,
                 const torch::Tensor& like);

  /// On a CPU, an element-wise rule works in slices, so that temporary tensors do not have the size
  /// of the parameters.
  void step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr);

  /// All statistics, one after another, in the order of the table.
  [[nodiscard]] const torch::Tensor& statistics() const { return statistics_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }

private:
  struct range {
    std::int64_t at = 0;             // in its flat tensor
    std::vector<std::int64_t> sizes; // the shape, or the number of values
  };
  /// What the rule is applied to at once, or in slices: a parameter, or neighbours that are treated
  /// alike.
  struct piece {
    range parameters;
    std::vector<range> statistics;
    bool decays = true;
  };

  void plan(const state_table& tensors);
  void join_neighbours();

  const update_rule& rule_;
  optimizer_identity numbers_;
  optimizer_identity without_decay_;
  std::vector<piece> pieces_;
  torch::Tensor statistics_;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
