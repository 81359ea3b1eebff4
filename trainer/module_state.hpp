#pragma once

// Internal to trainer/: includes LibTorch.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "actors/loop/swarm.hpp"
#include "runtime/agreement/run_agreement.hpp"
#include "runtime/training/loop_learner.hpp"
#include "runtime/training/state_schema.hpp"
#include "trainer/optimizer.hpp"
#include "trainer/optimizers.hpp"
#include "trainer/updated_tensors.hpp"

namespace waggle {

/// Schedulers of torch that stand at a number of updates. They step in the order in which they were
/// added.
class followed_schedulers {
public:
  /// REQUIRES: `optimizer` outlives this object. Its rates are those before the first update.
  explicit followed_schedulers(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
    for (auto& group : optimizer_.param_groups())
      first_rates_.push_back(group.options().get_lr());
  }

  void add(scheduler_maker make) {
    makers_.push_back(std::move(make));
    schedulers_.clear();
  }

  /// Sets the rates for the update after `updates` updates.
  void move_to(std::uint64_t updates) {
    if (schedulers_.empty() || updates < position_) { // the run's state may be older than ours
      for (std::size_t i = 0; i < first_rates_.size(); ++i)
        optimizer_.param_groups()[i].options().set_lr(first_rates_[i]);
      schedulers_.clear();
      for (const auto& make : makers_)
        schedulers_.push_back(make(optimizer_));
      position_ = 0;
    }
    for (; position_ < updates; ++position_)
      for (auto& each : schedulers_)
        each->step();
  }

private:
  torch::optim::Optimizer& optimizer_;
  std::vector<scheduler_maker> makers_;
  std::vector<double> first_rates_;
  std::vector<std::unique_ptr<torch::optim::LRScheduler>> schedulers_;
  std::uint64_t position_ = 0;
};

/// A user's module and optimizer as named float32 tensors: the trainable parameters in the order of
/// the module, tied parameters once (recognized by their data pointer), the statistics of the
/// optimizer, and the buffers (buffer_values.hpp) with extra tensors that the user names. The
/// parameters remain the same tensors; values are written in
/// place. Statistics that do not exist before the first step of the optimizer read as zeros.
///
/// With a master copy (update_place), a copy of the parameters in host memory is what the optimizer
/// steps on, and the state. The module's parameters, wherever they are, are made equal to it after
/// each change, or, beside passes, by `refresh`: what the loop writes to them itself is lost.
///
/// Not thread-safe: used by the loop's thread only. Keeps the module's tensors alive, but not the
/// module.
class module_state final : public loop_model {
public:
  /// If the optimizer contains a tied parameter several times, removes all but the first, because
  /// the optimizer would update the parameter once for each. Throws std::invalid_argument with a
  /// sentence if an optimizer, a parameter, or a buffer beside passes is not supported. `settles`:
  /// see table_of.
  module_state(const loop_parameters& trained, std::unique_ptr<torch::optim::Optimizer> optimizer,
               rate_owner owner, const named_tensors& extra = {},
               update_place place = update_place::module, bool settles = true);

  [[nodiscard]] const optimizer_identity& identity() const { return identity_; }
  /// The learning rate of the first parameter group.
  [[nodiscard]] double learning_rate() const;
  /// For the run's agreement: the rate of each parameter relative to it, when this was constructed,
  /// or a hash of that; empty: all have the same.
  [[nodiscard]] std::string rate_ratios() const;
  [[nodiscard]] const state_table& table() const { return table_; }
  [[nodiscard]] torch::optim::Optimizer& inner() { return *optimizer_; }

  /// Parameters of `trained` that nobody trains, each with a digest of its values.
  [[nodiscard]] static std::vector<compared_tensor> frozen(const loop_parameters& trained);

  /// See optimizer::follow. `epoch`: none: the number of updates.
  void follow(scheduler_maker make, std::function<std::uint64_t()> epoch);

  /// The learning rate of the first parameter group in the last update.
  [[nodiscard]] std::optional<double> rate_used() const { return updated_->rate_used(); }
  /// After an update: when it was made with another rate than the loop's for the third time in a
  /// row, or than the followed schedule's for the third time, once, a sentence about it.
  [[nodiscard]] std::optional<std::string> surprise();

  /// Throws std::runtime_error if a parameter of `trained` was added, removed, replaced, cast or
  /// moved since the constructor, or if the optimizer's parameter groups have other tensors or
  /// switches. Numbers may change. The message names the first change and says what to do.
  void check_unchanged(const loop_parameters& trained) const;
  /// The .grad of all parameters, where it is, behind it the buffers, and if there are numbers to
  /// settle this loop's update_terms. What is not float32 values one after another in host memory
  /// is copied. Valid until .grad changes or the next call.
  std::span<const offered_tensor> gradient();
  /// See micro_step::written.
  [[nodiscard]] std::string written() const;
  /// Divides the .grad of all parameters, where they are, by `scale`, a power of two.
  void unscale_gradients(double scale);
  /// Whether all values of the last `gradient()` are finite.
  [[nodiscard]] bool gradient_is_finite() const;

  // -- loop_model
  void settle(const update_terms& terms) override { updated_->settle(terms); }
  void apply(std::span<const float> gradient, double lr) override;
  void step(double lr) override;
  void read_tensor(std::size_t which, std::span<float> out) const override;
  void write_tensor(std::size_t which, std::span<const float> values) override;
  [[nodiscard]] std::uint64_t optimizer_steps() const override {
    return updated_->optimizer_steps();
  }
  void set_optimizer_steps(std::uint64_t steps) override;
  [[nodiscard]] std::uint64_t rounding() const override { return updated_->rounding(); }
  void refresh() override;

  /// The master copy for a loop_port, which another thread uses from then on; null if updates are
  /// not made beside passes. Only check_unchanged, gradient and refresh may be called then.
  [[nodiscard]] std::shared_ptr<loop_model> master() const;

private:
  struct parameter {
    std::string name;
    torch::Tensor tensor;
    torch::Device device;
    std::vector<std::int64_t> sizes;
  };

  /// A parameter group of the optimizer.
  struct group {
    optimizer_identity options;
    std::vector<torch::Tensor> tensors;
    double learning_rate = 0;
  };

  /// What terms_ say.
  struct wishes {
    std::vector<std::vector<std::optional<double>>> numbers; // by group; empty: none
    std::vector<bool> present;
    friend bool operator==(const wishes&, const wishes&) = default;
  };

  void take_parameters(const loop_parameters& trained);
  void take_buffers(const loop_parameters& trained, const named_tensors& extra);
  [[nodiscard]] std::vector<group> groups_now() const;
  void check_optimizer_unchanged() const;
  void read_buffers();
  void write_terms();
  [[nodiscard]] std::uint64_t first_buffer_value() const;
  void match_optimizer();
  void prepare_rates();
  void remember_versions();
  [[nodiscard]] const parameter* buffer(std::size_t which) const;

  std::shared_ptr<torch::optim::Optimizer> optimizer_; // the user's
  rate_owner owner_;
  update_place place_;
  const torch_optimizer* kind_ = nullptr;
  optimizer_identity identity_;
  std::vector<group> groups_; // when this was constructed
  std::vector<parameter> parameters_;
  std::vector<parameter> buffers_;
  state_table table_;
  std::optional<followed_schedulers> schedulers_;
  std::function<std::uint64_t()> epoch_; // of schedulers_; none: the number of updates
  std::uint64_t steps_before_run_ = 0;   // of the optimizer; 0 if it does not count
  std::vector<offered_tensor> offered_;  // the last `gradient()`
  std::vector<torch::Tensor> copied_;    // gradients that are not in host memory
  std::vector<float> finite_buffers_;    // the last values of the buffers that were finite
  std::vector<std::size_t> group_of_;    // by parameter
  std::vector<float> terms_;             // the last update_terms
  wishes written_;
  std::vector<std::uint32_t> versions_;        // of the parameters after our last change
  int surprises_ = 0;                          // updates with another rate than the loop's
  std::shared_ptr<updated_tensors> in_module_; // the parameters of the module
  std::shared_ptr<updated_tensors> updated_;   // the master copy; without one, the same
};

} // namespace waggle
