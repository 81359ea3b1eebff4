#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "runtime/core/float_vector.hpp"
#include "runtime/training/averaged_tensors.hpp"

namespace waggle {

/// Updates that the computing thread has been asked to apply, and may not have applied yet: it does
/// so between two passes. Those among them that change averaged tensors, or buffers, are kept: a
/// snapshot taken meanwhile must contain them, or the next change would repeat what they correct.
/// Not thread-safe.
class pending_changes {
public:
  /// An update of so many bytes, after all others.
  void ask(std::uint64_t bytes) {
    waiting_.push_back(bytes);
    bytes_ += bytes;
  }
  /// The oldest one is applied.
  void applied() {
    if (waiting_.empty())
      return;
    merged_ += waiting_.front() > 0 ? 1 : 0;
    bytes_ -= waiting_.front();
    waiting_.pop_front();
  }
  /// The number of updates that are not applied yet.
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  /// Whether they have more bytes. The newest one does not count: a single one must fit, whatever
  /// its size.
  [[nodiscard]] bool exceed(std::uint64_t bytes_max) const {
    return !waiting_.empty() && bytes_ - waiting_.back() > bytes_max;
  }

  /// The next change, after all others. Without a snapshot, the tensors become the mean.
  void add(std::shared_ptr<const float_vector> mean, std::shared_ptr<const float_vector> snapshot) {
    changes_.push_back({std::move(mean), std::move(snapshot)});
  }

  /// Forgets the first `applied` of all changes: every later copy contains them.
  void forget(std::uint64_t applied) {
    for (; forgotten_ < applied && !changes_.empty(); ++forgotten_)
      changes_.pop_front();
  }
  /// The same with all changes of updates that are applied.
  void forget_applied() { forget(merged_); }
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
  std::deque<std::uint64_t> waiting_; // bytes of each
  std::uint64_t bytes_ = 0;           // of all of them
  std::uint64_t merged_ = 0;          // updates with values that are applied
};

} // namespace waggle
