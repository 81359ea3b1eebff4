#include "runtime/training/pass_barrier.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using namespace std::chrono_literals;

peer_id peer(std::uint8_t n) {
  peer_id id{};
  id.bytes[0] = std::byte{n};
  return id;
}

struct PassBarrier : ::testing::Test {
  pass_barrier barrier{10s};
  steady_time now{};
  const std::vector<peer_id> none{};
  const std::vector<peer_id> slow{peer(1)};

  /// One update for which the slow member takes `time`.
  void update_after(std::chrono::nanoseconds time) {
    barrier.begin(now);
    EXPECT_EQ(barrier.missing(slow, now), 1U);
    now += time;
    EXPECT_EQ(barrier.missing(none, now), 0U);
  }
};

TEST_F(PassBarrier, TheFirstUpdateWaitsAsLongAsARoundMay) {
  barrier.begin(now);
  EXPECT_EQ(barrier.missing(slow, now + 9s), 1U);
  EXPECT_EQ(barrier.missing(slow, now + 10s), 0U);
}

TEST_F(PassBarrier, LaterOnesWaitTwiceAsLongAsTheSlowestTook) {
  for (int i = 0; i < 5; ++i)
    update_after(1s);
  barrier.begin(now);
  EXPECT_EQ(barrier.missing(slow, now + 1900ms), 1U);
  EXPECT_EQ(barrier.missing(slow, now + 2s), 0U);
}

TEST_F(PassBarrier, ASilentMemberIsWaitedForOnce) {
  for (int i = 0; i < 5; ++i)
    update_after(1s);
  barrier.begin(now);
  EXPECT_EQ(barrier.missing(slow, now + 2s), 0U);
  now += 2s;
  for (int i = 0; i < 3; ++i) {
    barrier.begin(now);
    EXPECT_EQ(barrier.missing(slow, now), 0U) << "update " << i;
    EXPECT_EQ(barrier.missing({peer(1), peer(2)}, now), 1U) << "another one is awaited";
  }
}

TEST_F(PassBarrier, OneThatIsInTimeAgainIsWaitedForAgain) {
  for (int i = 0; i < 5; ++i)
    update_after(1s);
  barrier.begin(now);
  (void)barrier.missing(slow, now + 2s);
  barrier.begin(now + 2s);
  EXPECT_EQ(barrier.missing(none, now + 2500ms), 0U);
  barrier.begin(now + 3s);
  EXPECT_EQ(barrier.missing(slow, now + 3s), 1U);
}

TEST_F(PassBarrier, WaitsForSilentMembersDoNotMakeThePatienceLonger) {
  for (int i = 0; i < 5; ++i)
    update_after(1s);
  for (int i = 0; i < 5; ++i) { // each time another one
    barrier.begin(now);
    const std::vector<peer_id> other{peer(static_cast<std::uint8_t>(10 + i))};
    EXPECT_EQ(barrier.missing(other, now + 1900ms), 1U);
    EXPECT_EQ(barrier.missing(other, now + 2s), 0U);
    now += 2s;
  }
}

} // namespace
} // namespace waggle
