#pragma once

// Internal to trainer/: includes LibTorch.

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "actors/loop/swarm.hpp"
#include "runtime/training/loop_learner.hpp"
#include "trainer/optimizers.hpp"

namespace waggle {

/// Parameters with the torch optimizer that updates them, and its statistics: those of a user's
/// module, or the master copy of them in host memory. A tensor of the state is a parameter or a
/// statistic of one. Statistics that do not exist before the first step read as zeros.
///
/// Not thread-safe.
class updated_tensors final : public loop_model {
public:
  /// @param table the state of which `tensors` are the parameters
  /// Throws std::invalid_argument if the run owns the rate, and the groups' rates have no ratios.
  updated_tensors(const state_table& table, std::vector<torch::Tensor> tensors,
                  const torch_optimizer& kind, std::shared_ptr<torch::optim::Optimizer> optimizer,
                  rate_owner owner);
  /// A copy in host memory, with an optimizer that is a copy of `from`'s. Empties the statistics of
  /// `from`'s optimizer: they would need memory and never change again.
  static std::shared_ptr<updated_tensors> master_of(const updated_tensors& from);
  /// The parameters of a flat tensor, with a rule_optimizer and the rate of the run. Its statistics
  /// exist from the beginning, each in one piece of memory for neighbours.
  static std::unique_ptr<updated_tensors> of_flat(const state_table& table,
                                                  const torch::Tensor& parameters,
                                                  const optimizer_identity& numbers);

  /// Writes the run's rate into an optimizer with the same parameter groups: the first group gets
  /// `lr`, and each other one keeps the ratio to it that it had when this was constructed.
  /// REQUIRES: rate_owner::run.
  void set_rates(torch::optim::Optimizer& of, double lr) const;
  /// Takes over the numbers of the parameter groups of an optimizer with the same groups.
  void take_numbers(torch::optim::Optimizer& from);
  /// Copies the gradients of the other copy, which may be undefined.
  void take_gradients(const updated_tensors& from);
  /// Copies the values of all parameters of the other copy.
  void take_values(const updated_tensors& from);
  /// The rate of the run in the last step, if the run owns the rate.
  [[nodiscard]] std::optional<double> rate_of_run() const { return rate_of_run_; }

  /// The learning rate of the first parameter group in the last step; nothing before. Any thread.
  [[nodiscard]] std::optional<double> rate_used() const {
    auto rate = rate_used_.load();
    return rate >= 0 ? std::optional{rate} : std::nullopt;
  }

  /// One step with a flat gradient on the device of the parameters, which is not copied.
  void apply(const torch::Tensor& gradient, double lr);
  /// Tensor number `which` of the table, made of zeros if it does not exist yet. That of what was
  /// left out is in host memory.
  [[nodiscard]] torch::Tensor tensor(std::size_t which);

  // -- loop_model
  void settle(const update_terms& terms) override { settled_ = terms; }
  void apply(std::span<const float> gradient, double lr) override;
  void step(double lr) override;
  void read_tensor(std::size_t which, std::span<float> out) const override;
  void write_tensor(std::size_t which, std::span<const float> values) override;
  [[nodiscard]] std::uint64_t optimizer_steps() const override { return steps_; }
  void set_optimizer_steps(std::uint64_t steps) override;
  [[nodiscard]] std::uint64_t rounding() const override { return rounding_; }

private:
  [[nodiscard]] std::uint64_t try_rounding() const;
  /// What a tensor of the table is.
  struct place {
    std::size_t parameter;                  // their number: what was left out
    std::optional<std::size_t> statistic{}; // of the parameter; none: itself
  };
  void find_places();
  void make_step();

  const state_table table_;
  const std::vector<torch::Tensor> tensors_;
  const torch_optimizer& kind_;
  const std::shared_ptr<torch::optim::Optimizer> optimizer_;
  const rate_owner owner_;
  const std::vector<double> ratios_; // of the groups' rates to the first one's; for rate_owner::run
  std::uint64_t rounding_ = 0;       // with the numbers that all peers begin with
  std::optional<double> rate_of_run_;
  std::uint64_t steps_ = 0;
  std::vector<place> places_;           // by tensor of the table, without buffers
  std::vector<float> left_out_;         // by parameter: updates without a gradient
  std::optional<update_terms> settled_; // for the next `apply`
  std::atomic<double> rate_used_{-1};
};

} // namespace waggle
