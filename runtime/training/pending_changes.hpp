#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "runtime/core/float_vector.hpp"
#include "runtime/training/averaged_tensors.hpp"

namespace waggle {

/// Changes that the computing thread has been asked to add to its tensors, and may not have added
/// yet: it does so between two passes. A snapshot taken meanwhile must contain them, or the next
/// change would repeat what they correct. Not thread-safe.
class pending_changes {
public:
  /// The next change, after all others. Without a snapshot, the tensors become the mean.
  void add(std::shared_ptr<const float_vector> mean, std::shared_ptr<const float_vector> snapshot) {
    changes_.push_back({std::move(mean), std::move(snapshot)});
  }

  /// Forgets the first `applied` of all changes: every later copy contains them.
  void forget(std::uint64_t applied) {
    for (; forgotten_ < applied && !changes_.empty(); ++forgotten_)
      changes_.pop_front();
  }
  [[nodiscard]] bool empty() const { return changes_.empty(); }

  /// Adds to `values`, a copy of the averaged tensors that contains the first `applied` changes,
  /// all later ones. Forgets those that it contains.
  void complete(const averaged_tensors& averaged, std::uint64_t applied, std::span<float> values) {
    forget(applied);
    for (const auto& change : changes_)
      averaged.add_change(values, *change.mean,
                          change.snapshot ? std::span<const float>{*change.snapshot}
                                          : std::span<const float>{});
  }

private:
  struct change {
    std::shared_ptr<const float_vector> mean;
    std::shared_ptr<const float_vector> snapshot;
  };
  std::deque<change> changes_;
  std::uint64_t forgotten_ = 0;
};

} // namespace waggle
