#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "runtime/training/learner.hpp"

namespace waggle {

/// A learner for strategies with inner_rule::step: its optimizer steps with each micro-batch, and
/// its tensors are averaged. They can be copied at any time, also in the middle of a pass, because
/// passes only read them; `values_` guards them while they change.
class local_learner : public learner {
public:
  /// One optimizer step with the accumulated gradient, which is emptied. The computing thread.
  /// Implementations hold `values_` while tensors change, here and in `apply`.
  virtual void step_locally(double lr) = 0;

  /// Adds a change to the tensors with these indices in `tensors()`, whose values stand one after
  /// another in both vectors: see `changed`. The computing thread.
  void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                  std::span<const float> snapshot);
  /// Copies the tensors as they are between two steps or changes. Returns how many changes they
  /// contain. Any thread; waits for a step, not for a pass.
  std::uint64_t copy_tensors(std::span<const std::size_t> which, std::span<float> out) const;

protected:
  mutable std::mutex values_;

private:
  std::uint64_t changes_ = 0;
};

} // namespace waggle
