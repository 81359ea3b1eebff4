#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace waggle {

/// Keeps the last result vectors for the next rounds: fresh memory costs a page fault every 4 KiB.
/// Vectors come back by themselves when their last user lets go, also after the pool is gone.
/// Thread-safe.
class vector_pool : public std::enable_shared_from_this<vector_pool> {
public:
  using vector = std::vector<float>;

  /// Keeps at most `vectors_max` unused vectors.
  static std::shared_ptr<vector_pool> make(std::size_t vectors_max) {
    return std::shared_ptr<vector_pool>{new vector_pool{vectors_max}};
  }

  /// A vector of `size` values; which values is not specified.
  std::shared_ptr<vector> take(std::size_t size) {
    std::unique_ptr<vector> found;
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
      found = std::make_unique<vector>(size);
    return {found.release(), [home = weak_from_this()](vector* v) {
              std::unique_ptr<vector> back{v};
              if (auto pool = home.lock())
                pool->give_back(std::move(back));
            }};
  }

private:
  explicit vector_pool(std::size_t vectors_max) : vectors_max_(vectors_max) {}

  void give_back(std::unique_ptr<vector> back) {
    std::lock_guard guard{mutex_};
    if (vectors_max_ == 0)
      return;
    if (unused_.size() >= vectors_max_)
      unused_.erase(unused_.begin());
    unused_.push_back(std::move(back));
  }

  const std::size_t vectors_max_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<vector>> unused_;
};

} // namespace waggle
