#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "runtime/training/learner.hpp"

namespace waggle {

/// The point at the share `alpha` (0 to 1) of the way from `x` to the mean; exactly `x` if they are
/// equal.
inline float moved_towards(float x, float mean, double alpha) {
  auto from = static_cast<double>(x);
  return static_cast<float>(from + alpha * (static_cast<double>(mean) - from));
}

/// A stepping learner whose tensors are averaged. They can be copied at any time, also in the
/// middle of a pass, because passes only read them (or the learner keeps a copy for this).
/// Implementations hold `values_` while tensors change, in `step_locally` and `apply`.
class local_learner : public stepping_learner {
public:
  /// Adds a change to the tensors with these indices in `tensors()`, whose values stand one after
  /// another in both vectors: see `changed`. The computing thread.
  virtual void add_change(std::span<const std::size_t> which, std::span<const float> mean,
                          std::span<const float> snapshot);
  /// Copies the tensors as they are between two steps or changes. Returns how many changes they
  /// contain. Any thread; waits for a step, not for a pass.
  virtual std::uint64_t copy_tensors(std::span<const std::size_t> which,
                                     std::span<float> out) const;
  /// Whether `copy_tensors` may be called during a pass: not if the pass changes the tensors.
  [[nodiscard]] virtual bool copies_during_passes() const { return tensors().buffer_count() == 0; }

protected:
  mutable std::mutex values_;
  std::uint64_t changes_ = 0; // that the tensors contain; guarded by values_
};

} // namespace waggle
