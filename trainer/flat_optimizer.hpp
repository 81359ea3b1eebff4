#pragma once

// Internal to trainer/.

#include <string>
#include <vector>

#include <torch/torch.h>

#include "trainer/optimizers.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// An optimizer of optimizer_table over one flat parameter tensor, with the update rules of
/// torch::optim (a test compares them). The statistics are flat tensors, too, so they are sent and
/// saved without conversion. All operations are element-wise and in a fixed order: equal inputs
/// give equal bytes.
class flat_optimizer {
public:
  flat_optimizer(const learner_config& config, const torch::Tensor& like);

  /// On a CPU, works in slices, so that temporary tensors do not have the size of the parameters.
  void step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr);

  /// In the order of optimizer_row::statistics.
  std::vector<torch::Tensor>& statistics() { return statistics_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }

private:
  const torch_optimizer& rule_;
  optimizer_identity numbers_;
  std::vector<torch::Tensor> statistics_;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
