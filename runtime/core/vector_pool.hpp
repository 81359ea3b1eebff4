#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/float_vector.hpp"

namespace waggle {

/// Keeps the last vectors for the next rounds: fresh memory costs a page fault every 4 KiB. A
/// vector returns to the pool when its last user releases it, also after the pool is destroyed.
/// Thread-safe.
class vector_pool : public std::enable_shared_from_this<vector_pool> {
public:
  /// Keeps at most `vectors_max` unused vectors. `memory` provides their storage (null: the heap).
  /// It must be thread-safe, and lives as long as any of the vectors.
  static std::shared_ptr<vector_pool>
  make(std::size_t vectors_max, std::shared_ptr<std::pmr::memory_resource> memory = nullptr) {
    return std::shared_ptr<vector_pool>{new vector_pool{vectors_max, std::move(memory)}};
  }

  /// A vector of `size` unspecified values.
  std::shared_ptr<float_vector> take(std::size_t size) {
    std::unique_ptr<float_vector> found;
    {
      std::lock_guard guard{mutex_};
      auto fits = std::find_if(unused_.begin(), unused_.end(),
                               [size](const auto& v) { return v->size() == size; });
      if (fits != unused_.end()) {
        found = std::move(*fits);
        unused_.erase(fits);
      }
    }
    if (!found)
      found = std::make_unique<float_vector>(size, memory_ ? memory_.get()
                                                           : std::pmr::new_delete_resource());
    {
      std::lock_guard guard{mutex_};
      ++lent_;
    }
    return {found.release(), [owner = weak_from_this(), memory = memory_](float_vector* v) {
              std::unique_ptr<float_vector> back{v};
              if (auto pool = owner.lock())
                pool->give_back(std::move(back));
            }};
  }

  /// The number of vectors that were taken and not returned yet: the memory of running rounds, and
  /// of results that are still in use.
  [[nodiscard]] std::size_t lent() const {
    std::lock_guard guard{mutex_};
    return lent_;
  }

private:
  vector_pool(std::size_t vectors_max, std::shared_ptr<std::pmr::memory_resource> memory)
    : vectors_max_(vectors_max), memory_(std::move(memory)) {}

  void give_back(std::unique_ptr<float_vector> back) {
    std::lock_guard guard{mutex_};
    --lent_;
    if (vectors_max_ == 0)
      return;
    if (unused_.size() >= vectors_max_)
      unused_.erase(unused_.begin());
    unused_.push_back(std::move(back));
  }

  const std::size_t vectors_max_;
  /// Declared before the vectors that use it, so destroyed after them.
  const std::shared_ptr<std::pmr::memory_resource> memory_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<float_vector>> unused_;
  std::size_t lent_ = 0;
};

} // namespace waggle
