#include "runtime/core/buffer_pool.hpp"

#include <cstring>

#include <gtest/gtest.h>

#include "runtime/core/bytes.hpp"

namespace waggle {
namespace {

TEST(BufferPool, BuffersNeverOverlap) {
  auto pool = buffer_pool::make(16_MiB);
  std::vector<std::pair<std::shared_ptr<std::byte>, std::size_t>> held;
  int tag = 0;
  for (std::size_t size : {1_KiB, 64_KiB, 100_KiB, 512_KiB, 1_MiB, 1_MiB + 1, 3_MiB})
    for (int i = 0; i < 5; ++i) {
      held.emplace_back(pool->take(size), size);
      std::memset(held.back().first.get(), ++tag, size);
    }
  tag = 0;
  for (const auto& [buffer, size] : held) {
    auto mine = std::byte(++tag);
    EXPECT_EQ(*buffer, mine);
    EXPECT_EQ(buffer.get()[size / 2], mine);
    EXPECT_EQ(buffer.get()[size - 1], mine);
  }
}

TEST(BufferPool, GivesWhatCameBackOutAgain) {
  auto pool = buffer_pool::make(16_MiB);
  auto first = pool->take(3_MiB);
  const auto* memory = first.get();
  first.reset();
  EXPECT_EQ(pool->take(3_MiB).get(), memory);
  EXPECT_NE(pool->take(1_MiB).get(), memory) << "a third of it would be wasted for long";
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
  auto pool = buffer_pool::make(4_MiB);
  auto first = pool->take(3_MiB);
  auto second = pool->take(3_MiB);
  const auto* kept = first.get();
  first.reset();
  second.reset(); // no room
  EXPECT_EQ(pool->take(3_MiB).get(), kept);
}

TEST(BufferPool, BuffersOutliveThePool) {
  auto pool = buffer_pool::make(4_MiB);
  auto piece = pool->take(512_KiB);
  auto block = pool->take(3_MiB);
  pool.reset();
  std::memset(piece.get(), 1, 512_KiB);
  std::memset(block.get(), 1, 3_MiB);
}

/// Counts bytes that are allocated and not deallocated.
class counting_resource final : public std::pmr::memory_resource {
public:
  std::size_t bytes = 0;

private:
  void* do_allocate(std::size_t n, std::size_t alignment) override {
    bytes += n;
    return std::pmr::new_delete_resource()->allocate(n, alignment);
  }
  void do_deallocate(void* at, std::size_t n, std::size_t alignment) override {
    bytes -= n;
    std::pmr::new_delete_resource()->deallocate(at, n, alignment);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }
};

TEST(BufferPool, UsesTheGivenMemoryResourceAndReturnsItsMemory) {
  auto memory = std::make_shared<counting_resource>();
  auto pool = buffer_pool::make(4_MiB, memory);
  auto small = pool->take(1_KiB);
  EXPECT_EQ(memory->bytes, 0U) << "that would waste a granule";
  auto piece = pool->take(512_KiB);
  auto block = pool->take(3_MiB);
  EXPECT_GE(memory->bytes, 3_MiB + 512_KiB);
  pool.reset();
  piece.reset();
  block.reset();
  EXPECT_EQ(memory->bytes, 0U);
}

} // namespace
} // namespace waggle
