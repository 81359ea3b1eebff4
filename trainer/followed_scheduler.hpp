#pragma once

// Internal to trainer/: includes LibTorch.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "trainer/optimizer.hpp"

namespace waggle {

/// A scheduler of torch that stands at a number of updates.
class followed_scheduler {
public:
  /// REQUIRES: `optimizer` outlives this object. Its rates are those before the first update.
  followed_scheduler(torch::optim::Optimizer& optimizer, scheduler_maker make)
    : optimizer_(optimizer), make_(std::move(make)) {
    for (auto& group : optimizer_.param_groups())
      first_rates_.push_back(group.options().get_lr());
  }

  /// Sets the rates for the update after `updates` updates.
  void move_to(std::uint64_t updates) {
    if (scheduler_ == nullptr || updates < position_) { // the run's state may be older than ours
      for (std::size_t i = 0; i < first_rates_.size(); ++i)
        optimizer_.param_groups()[i].options().set_lr(first_rates_[i]);
      scheduler_ = make_(optimizer_);
      position_ = 0;
    }
    for (; position_ < updates; ++position_)
      scheduler_->step();
  }

private:
  torch::optim::Optimizer& optimizer_;
  const scheduler_maker make_;
  std::vector<double> first_rates_;
  std::unique_ptr<torch::optim::LRScheduler> scheduler_;
  std::uint64_t position_ = 0;
};

} // namespace waggle
