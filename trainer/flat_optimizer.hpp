#pragma once

// Internal to trainer/.

#include <string>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/state_table.hpp"
#include "runtime/training/update_terms.hpp"
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

  /// One step with the rate `lr`, or with what the members have settled instead, if there are
  /// `terms`: these leave out parameters that have no gradient, whose statistics then have a step
  /// less. On a CPU, an
  /// element-wise rule works in slices, so that temporary tensors do not have the size of the
  /// parameters.
  void step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr,
            const update_terms* terms = nullptr);

  /// All statistics, one after another, in the order of the table.
  [[nodiscard]] const torch::Tensor& statistics() const { return statistics_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  /// The last thing of a state that is loaded.
  void set_steps(std::uint64_t steps);

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
  /// How a parameter is treated.
  struct treatment {
    optimizer_identity numbers;
    double lr = 0;
    std::uint64_t count = 0; // of its steps, this one included; 0: it is left out

    friend bool operator==(const treatment&, const treatment&) = default;
  };

  void plan(const state_table& tensors);
  [[nodiscard]] treatment treatment_of(std::size_t parameter, double lr,
                                       const update_terms* terms) const;
  void apply(const piece& to, const treatment& how, torch::Tensor& parameters,
             const torch::Tensor& gradient);

  const update_rule& rule_;
  optimizer_identity numbers_;
  std::vector<const hyper_parameter*> settled_; // those behind the rate and the weight decay
  std::vector<piece> pieces_;                   // the parameters
  torch::Tensor statistics_;
  torch::Tensor left_out_tensor_;       // of the statistics: the same as
  std::vector<std::uint64_t> left_out_; // by parameter: updates without a gradient
  std::uint64_t steps_ = 0;
};

} // namespace waggle
