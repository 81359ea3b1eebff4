#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/unique_fd.hpp"

namespace waggle::net {

/// Memory that peers on this host may read: data in it is shared between processes without a copy.
/// Large blocks are allocated from a few segments. A segment is one memory file (memfd), sealed
/// against changes of its size; it disappears with the last process that maps it.
///
/// A segment reserves address space. Its pages cost memory once they are touched, and are returned
/// to the system when more than `idle_bytes_max` of them belong to no block. Thread-safe.
class shared_arena : public std::enable_shared_from_this<shared_arena> {
public:
  struct limits {
    std::size_t segment_bytes = 256_MiB; // a larger block gets a segment of its own
    std::size_t bytes_max = 2_GiB;       // of all segments
    std::size_t idle_bytes_max = 256_MiB;
  };
  static constexpr std::size_t segments_max = 16;
  /// Blocks begin and end at multiples of this.
  static constexpr std::size_t granule_bytes = 64_KiB;
  static constexpr std::size_t block_alignment = 4_KiB;

  /// Null: the system has no memory files.
  static std::shared_ptr<shared_arena> make(limits with);
  static std::shared_ptr<shared_arena> make() { return make(limits{}); }
  ~shared_arena();

  /// At least `bytes` bytes, aligned to `block_alignment`, of unspecified content. The block is
  /// freed when the pointer is released. Null: the arena is full.
  std::shared_ptr<std::byte> take(std::size_t bytes);

  /// The same with explicit ownership: pass what `take_raw` returned, and the same size, to `give`.
  std::byte* take_raw(std::size_t bytes);
  void give(std::byte* block, std::size_t bytes);

  struct place {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
  };
  /// Where [at, at + bytes) lies. Nothing: not in this arena.
  [[nodiscard]] std::optional<place> locate(const void* at, std::size_t bytes) const;

  struct segment_view {
    int fd = -1; // stays open as long as the arena lives
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::size_t bytes_max() const { return limits_.bytes_max; }

  /// Segments are only added.
  [[nodiscard]] std::size_t segment_count() const;
  [[nodiscard]] segment_view segment(std::size_t index) const;

  /// Bytes in blocks, and bytes in no block whose pages still cost memory.
  struct use {
    std::size_t taken = 0;
    std::size_t idle = 0;
  };
  [[nodiscard]] use in_use() const;

private:
  struct segment_state {
    unique_fd file;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::vector<bool> taken;    // by granule
    std::vector<bool> touched;  // by granule: has pages
    std::size_t first_free = 0; // no granule before it is free
  };

  explicit shared_arena(limits with) : limits_(with) {}
  bool grow(std::size_t bytes);
  std::byte* take_from(segment_state& from, std::size_t granules);
  [[nodiscard]] segment_state* segment_of(const void* at, std::size_t bytes);

  const limits limits_;
  mutable std::mutex mutex_;
  std::vector<segment_state> segments_;
  std::size_t mapped_bytes_ = 0;
  std::size_t taken_granules_ = 0;
  std::size_t idle_granules_ = 0; // touched, not taken
};

/// Allocates large blocks in an arena, and small ones on the heap. If the arena is full, large
/// blocks go to the heap, too. What a round sends from such a vector to a peer on this host is not
/// copied, so it must not change while a payload refers to it. Thread-safe.
class arena_resource final : public std::pmr::memory_resource {
public:
  /// REQUIRES: not null.
  explicit arena_resource(std::shared_ptr<shared_arena> arena) : arena_(std::move(arena)) {}

private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::shared_ptr<shared_arena> arena_;
};

} // namespace waggle::net
