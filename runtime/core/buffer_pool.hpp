#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <utility>
#include <vector>

namespace waggle {

/// Keeps the last few buffers for the next incoming or encoded data: fresh memory costs a page
/// fault every 4 KiB. Medium-sized buffers are pieces of slabs of one huge page. Buffers are shared
/// pointers that return to the pool when released, also after the pool is destroyed. Thread-safe.
class buffer_pool : public std::enable_shared_from_this<buffer_pool> {
public:
  /// Keeps at most `bytes_max` of unused buffers. `memory` provides buffers of 64 KiB and more
  /// (null: the heap, in huge pages). It must be thread-safe, and lives as long as any of the
  /// buffers.
  static std::shared_ptr<buffer_pool>
  make(std::size_t bytes_max, std::shared_ptr<std::pmr::memory_resource> memory = nullptr);

  /// At least `size` bytes, not initialized.
  std::shared_ptr<std::byte> take(std::size_t size);

private:
  struct block {
    std::shared_ptr<std::byte> bytes; // part of a slab, or an allocation of its own
    std::size_t capacity = 0;
  };

  block make_block(std::size_t size);

  buffer_pool(std::size_t bytes_max, std::shared_ptr<std::pmr::memory_resource> memory)
    : bytes_max_(bytes_max), memory_(std::move(memory)) {}
  void give_back(block unused);

  const std::size_t bytes_max_;
  const std::shared_ptr<std::pmr::memory_resource> memory_;
  std::mutex mutex_;
  std::vector<block> unused_;
  std::size_t unused_bytes_ = 0;
};

} // namespace waggle
