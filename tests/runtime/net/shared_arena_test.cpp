#include "runtime/net/shared_arena.hpp"

#include <algorithm>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "runtime/net/peer_memory.hpp"

namespace waggle::net {
namespace {

constexpr auto granule = shared_arena::granule_bytes;

std::shared_ptr<shared_arena> small_arena(std::size_t segments = 2, std::size_t idle = 1_GiB) {
  return shared_arena::make({4 * granule, segments * 4 * granule, idle});
}

TEST(SharedArena, BlocksAreDisjointAndReused) {
  auto arena = small_arena();
  auto a = arena->take(granule + 1);
  auto b = arena->take(1);
  ASSERT_TRUE(a && b);
  EXPECT_GE(b.get() - a.get(), static_cast<std::ptrdiff_t>(2 * granule));
  EXPECT_EQ(arena->in_use().taken, 3 * granule);
  auto* before = a.get();
  a.reset();
  EXPECT_EQ(arena->in_use().idle, 2 * granule);
  EXPECT_EQ(arena->take(2 * granule).get(), before) << "its pages are reused";
}

TEST(SharedArena, GrowsByWholeSegmentsUpToItsLimit) {
  auto arena = small_arena();
  auto a = arena->take(4 * granule);
  auto b = arena->take(4 * granule);
  EXPECT_EQ(arena->segment_count(), 2u);
  EXPECT_EQ(arena->take(1), nullptr);
  EXPECT_EQ(arena->take(0), nullptr);
  EXPECT_EQ(arena->take(~std::size_t{0}), nullptr);
  b.reset();
  EXPECT_NE(arena->take(1), nullptr);
  auto large = shared_arena::make({granule, 20 * granule, 1_GiB});
  EXPECT_NE(large->take(19 * granule), nullptr) << "a segment of its own";
}

TEST(SharedArena, KnowsWhatLiesWithin) {
  auto arena = small_arena();
  auto a = arena->take(4 * granule);
  auto b = arena->take(2 * granule);
  auto found = arena->locate(b.get() + 5, 10);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->segment, 1u);
  EXPECT_EQ(found->offset, 5u);
  EXPECT_TRUE(arena->locate(a.get(), 4 * granule));
  EXPECT_FALSE(arena->locate(a.get() + 1, 4 * granule)) << "ends outside";
  int elsewhere = 0;
  EXPECT_FALSE(arena->locate(&elsewhere, 1));
}

TEST(SharedArena, ReturnsUnusedPagesToTheSystem) {
  auto arena = small_arena(2, 2 * granule);
  auto a = arena->take(2 * granule);
  auto b = arena->take(2 * granule);
  auto* memory = b.get();
  std::fill_n(memory, 2 * granule, std::byte{7});
  a.reset();
  EXPECT_EQ(arena->in_use().idle, 2 * granule);
  b.reset();
  EXPECT_EQ(arena->in_use().idle, 2 * granule) << "no more than allowed";
  EXPECT_EQ(memory[0], std::byte{0}) << "a page that was given back reads as zeros";
}

TEST(SharedArena, ABlockKeepsItsArena) {
  auto arena = small_arena();
  auto block = arena->take(1);
  arena.reset();
  *block = std::byte{1};
  EXPECT_EQ(*block, std::byte{1});
}

TEST(SharedArena, ContainersLieInItIfTheyAreLarge) {
  auto arena = small_arena();
  using vector = std::pmr::vector<float>;
  arena_resource where{arena};
  vector large(granule, 1.0F, &where);
  vector small(10, 2.0F, &where);
  vector too_large(64 * granule, 3.0F, &where);
  EXPECT_TRUE(arena->locate(large.data(), 4 * granule));
  EXPECT_FALSE(arena->locate(small.data(), 1));
  EXPECT_FALSE(arena->locate(too_large.data(), 1)) << "the heap has room";
  auto moved = std::move(large);
  EXPECT_EQ(moved[granule - 1], 1.0F);
  moved = vector{&where};
  EXPECT_EQ(arena->in_use().taken, 0u);
  vector without(granule, 1.0F);
  EXPECT_FALSE(arena->locate(without.data(), 1));
}

// -- the other side ------------------------------------------------------------------------------

struct watched {
  watched() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends.data()), 0);
    ours = unique_fd{ends[0]};
    memory = std::make_shared<peer_memory>(unique_fd{ends[1]}, [this] { ++told; });
  }
  [[nodiscard]] bool let_go() const {
    char c = 0;
    return ::recv(ours.get(), &c, 1, 0) == 0;
  }

  unique_fd ours;
  int told = 0;
  std::shared_ptr<peer_memory> memory;
};

unique_fd memory_file(std::size_t bytes, int seals) {
  unique_fd file{::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  if (seals != 0) {
    EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  }
  return file;
}

TEST(PeerMemory, MapsOnlyWhatCannotShrink) {
  watched w;
  EXPECT_FALSE(w.memory->add(memory_file(granule, 0), granule));
  EXPECT_FALSE(w.memory->add(memory_file(granule, F_SEAL_GROW), granule));
  EXPECT_FALSE(w.memory->add(memory_file(granule, F_SEAL_SHRINK), granule));
  EXPECT_FALSE(w.memory->add(memory_file(granule, F_SEAL_SHRINK | F_SEAL_GROW), 2 * granule))
    << "not the announced size";
  EXPECT_FALSE(w.memory->add(unique_fd{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)}, granule));
  EXPECT_FALSE(w.memory->add(unique_fd{}, granule));
  EXPECT_EQ(w.memory->segment_count(), 0u);
  EXPECT_TRUE(w.memory->add(memory_file(granule, F_SEAL_SHRINK | F_SEAL_GROW), granule));
  EXPECT_EQ(w.memory->segment_count(), 1u);
}

TEST(PeerMemory, RefusesReferencesOutsideTheSegments) {
  watched w;
  ASSERT_TRUE(w.memory->add(memory_file(granule, F_SEAL_SHRINK | F_SEAL_GROW), granule));
  auto refused = [&](memory_reference r) {
    auto got = w.memory->borrow(r);
    return !got && got.error().code == ec::protocol_violation;
  };
  EXPECT_TRUE(refused({1, 1, 0, 1})) << "no such segment";
  EXPECT_TRUE(refused({0, 0, 0, 1})) << "nothing";
  EXPECT_TRUE(refused({0, static_cast<std::uint32_t>(granule + 1), 0, 1}));
  EXPECT_TRUE(refused({0, 2, granule - 1, 1}));
  EXPECT_TRUE(refused({0, 1, ~std::uint64_t{0}, 1})) << "the sum must not overflow";
  EXPECT_TRUE(refused({0, 0xffffffffU, ~std::uint64_t{0} - 5, 1}));
  EXPECT_TRUE(w.memory->borrow({0, static_cast<std::uint32_t>(granule), 0, 1}));
}

TEST(PeerMemory, ReportsReleasedReferencesAndTheEndOfAllUse) {
  watched w;
  ASSERT_TRUE(w.memory->add(memory_file(granule, F_SEAL_SHRINK | F_SEAL_GROW), granule));
  auto a = *w.memory->borrow({0, 10, 0, 41});
  auto b = *w.memory->borrow({0, 10, 5, 42});
  auto part = slice(b, 1, 2);
  b = {};
  EXPECT_TRUE(w.memory->take_returned().empty()) << "a part of it is in use";
  part = {};
  EXPECT_EQ(w.told, 1);
  EXPECT_EQ(w.memory->take_returned(), std::vector<std::uint64_t>{42});
  w.memory.reset(); // the link has ended
  EXPECT_FALSE(w.let_go());
  EXPECT_EQ(a.view()[0], std::byte{0}) << "still mapped";
  a = {};
  EXPECT_TRUE(w.let_go());
}

} // namespace
} // namespace waggle::net
