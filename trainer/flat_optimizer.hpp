#pragma once

// Internal to trainer/.

#include <string>
#include <vector>

#include <torch/torch.h>

#include "trainer/torch_learner.hpp"

namespace waggle {

/// SGD with momentum, Adam or AdamW over one flat parameter tensor, with the update rules of
/// torch::optim (a test compares them). The statistics are flat tensors, too, so they are sent and
/// saved without conversion. All operations are element-wise and in a fixed order: equal inputs
/// give equal bytes.
class flat_optimizer {
public:
  flat_optimizer(const learner_config& config, const torch::Tensor& like);

  /// On a CPU, works in slices, so that temporary tensors do not have the size of the parameters.
  void step(torch::Tensor& parameters, const torch::Tensor& gradient, double lr);

  /// None for plain SGD, the momentum for SGD with momentum, the first and second moment for Adam
  /// and AdamW, in the order of `statistics_of` (state_schema.hpp).
  std::vector<torch::Tensor>& statistics() { return statistics_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }

private:
  enum class rule : std::uint8_t { sgd, adam, adamw };

  void step_slice(const torch::Tensor& all, const torch::Tensor& gradient, double lr,
                  std::int64_t at, std::int64_t length);

  rule rule_;
  double momentum_;
  double beta1_;
  double beta2_;
  double epsilon_;
  double weight_decay_;
  std::vector<torch::Tensor> statistics_;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
