#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/training/learner.hpp"
#include "runtime/training/loss_scaler.hpp"

namespace waggle {

/// The scale of the loss, for passes and updates on different threads. Thread-safe.
class shared_loss_scale {
public:
  explicit shared_loss_scale(const loss_scale_rule& rule) : scaler_(rule) {}

  [[nodiscard]] double scale() const {
    std::lock_guard lock{mutex_};
    return scaler_.scale();
  }
  // See loss_scaler.
  bool on_overflow(double used) {
    std::lock_guard lock{mutex_};
    return scaler_.on_overflow(used);
  }
  void on_update() {
    std::lock_guard lock{mutex_};
    scaler_.on_update();
  }
  [[nodiscard]] std::string save() const {
    std::lock_guard lock{mutex_};
    return scaler_.save();
  }
  status load(std::string_view saved) {
    std::lock_guard lock{mutex_};
    return scaler_.load(saved);
  }

private:
  mutable std::mutex mutex_;
  loss_scaler scaler_; // guarded by mutex_
};

/// Makes learners whose updates `scale` counts, and whose own state it is. Null: `make` itself.
/// Whoever runs the passes scales the loss and notes overflows.
learner_factory with_loss_scale(learner_factory make, std::shared_ptr<shared_loss_scale> scale);

} // namespace waggle
