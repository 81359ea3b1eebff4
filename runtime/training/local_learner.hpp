#pragma once

#include <cstddef>
#include <span>

#include "runtime/training/learner.hpp"

namespace waggle {

/// A learner for strategies with inner_rule::step: its optimizer steps with each micro-batch, and
/// its tensors are averaged.
class local_learner : public learner {
public:
  /// One optimizer step with the accumulated gradient, which is emptied. The computing thread.
  virtual void step_locally(double lr) = 0;
  /// Copies the tensors with these indices in `tensors()`, one after another, as they are between
  /// two steps. Any thread, also in the middle of a pass: waits for a step, not for a pass.
  virtual void copy_tensors(std::span<const std::size_t> which, std::span<float> out) const = 0;
};

} // namespace waggle
