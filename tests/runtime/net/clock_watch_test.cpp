#include "runtime/net/clock_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle::net {
namespace {

using ::testing::HasSubstr, ::testing::Optional;

peer_id peer(std::uint8_t who) {
  peer_id out;
  out.bytes.fill(static_cast<std::byte>(who));
  return out;
}

const steady_time start{};

TEST(ClockOffset, IsWhatNoDelayExplains) {
  auto at = [](auto seconds) { return swarm_time{std::chrono::hours{1} + seconds}; };
  // The peer read its clock between our readings 10 and 12.
  EXPECT_EQ(least_offset(at(11s), at(10s), at(12s)), 0s);
  EXPECT_EQ(least_offset(at(10s), at(10s), at(12s)), 0s);
  EXPECT_EQ(least_offset(at(12s), at(10s), at(12s)), 0s);
  EXPECT_EQ(least_offset(at(15s), at(10s), at(12s)), 3s);
  EXPECT_EQ(least_offset(at(4s), at(10s), at(12s)), -6s);
  EXPECT_EQ(least_offset(at(11s), at(12s), at(10s)), 0s) << "our clock was set back";
}

TEST(ClockOffset, OfAnyTimeHasAnAbsoluteValue) {
  auto low = least_offset(swarm_time::min(), swarm_time::max(), swarm_time::max());
  auto high = least_offset(swarm_time::max(), swarm_time::min(), swarm_time::min());
  EXPECT_LT(low, 0s);
  EXPECT_GT(-low, 0s);
  EXPECT_GT(high, 0s);
  EXPECT_TRUE(beyond(low, 15s));
  EXPECT_TRUE(beyond(high, 15s));
}

TEST(ClockLimits, LeaveMostOfTheTimeForWhichAReportCounts) {
  EXPECT_EQ(clock_limits_for(60s).refused, 15s);
  EXPECT_EQ(clock_limits_for(60s).noticeable, 500ms);
  auto least = clock_limits_for(1s);
  EXPECT_EQ(least.refused, 1s);
  EXPECT_LE(least.noticeable, least.refused);
}

TEST(ClockWatch, SaysNothingOfClocksThatAgree) {
  clock_watch watch{{}};
  for (std::uint8_t i = 1; i < 20; ++i)
    EXPECT_FALSE(watch.compared(peer(i), i % 2 == 0 ? 499ms : -499ms, start));
}

TEST(ClockWatch, WarnsOncePerPeer) {
  clock_watch watch{{}};
  for (std::uint8_t i = 1; i < 6; ++i)
    (void)watch.compared(peer(i), 0s, start);
  EXPECT_THAT(
    watch.compared(peer(9), 1200ms, start),
    Optional(HasSubstr("the clock of peer 09090909 is 1.2 s ahead of the clock of this")));
  EXPECT_FALSE(watch.compared(peer(9), 1300ms, start + 1h));
  EXPECT_THAT(watch.compared(peer(8), -800ms, start), Optional(HasSubstr("0.8 s behind")));
}

TEST(ClockWatch, SaysOnceMoreThatAPeerIsRefused) {
  clock_watch watch{{}};
  for (std::uint8_t i = 1; i < 6; ++i)
    (void)watch.compared(peer(i), 0s, start);
  EXPECT_TRUE(watch.compared(peer(9), 1s, start));
  EXPECT_THAT(watch.compared(peer(9), 60s, start),
              Optional(HasSubstr("no link with peer 09090909")));
  EXPECT_FALSE(watch.compared(peer(9), 61s, start));
}

TEST(ClockWatch, BlamesThisMachineIfMostPeersDisagreeWithIt) {
  clock_watch watch{{}};
  EXPECT_THAT(watch.compared(peer(1), -61s, start), Optional(HasSubstr("no link with peer")))
    << "one peer may be wrong itself";
  EXPECT_THAT(
    watch.compared(peer(2), -61s, start),
    Optional(HasSubstr(
      "this machine's clock is 61.0 s ahead of that of 2 of 2 peers: set it, e.g. with NTP")));
  EXPECT_FALSE(watch.compared(peer(3), -61s, start)) << "one sentence";
  EXPECT_THAT(watch.compared(peer(4), -61s, start + 11min), Optional(HasSubstr("4 of 4 peers")));
}

TEST(ClockWatch, DoesNotBlameThisMachineForAMinority) {
  clock_watch watch{{}};
  (void)watch.compared(peer(1), 0s, start);
  (void)watch.compared(peer(2), 0s, start);
  for (std::uint8_t i = 3; i < 5; ++i) {
    auto said = watch.compared(peer(i), -61s, start);
    ASSERT_TRUE(said);
    EXPECT_THAT(*said, HasSubstr("no link with peer")) << "two of four are not most";
  }
}

TEST(ClockWatch, DoesNotBlameThisMachineForClocksThatAreOffInBothDirections) {
  clock_watch watch{{}};
  (void)watch.compared(peer(1), 5s, start);
  auto said = watch.compared(peer(2), -5s, start);
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("the clock of peer"));
}

TEST(ClockWatch, IsNotMovedByOneVoice) {
  clock_watch watch{{}};
  for (std::uint8_t i = 1; i < 6; ++i)
    (void)watch.compared(peer(i), 10ms, start);
  (void)watch.compared(peer(9), 1h, start);
  EXPECT_EQ(watch.median(), 10ms);
}

TEST(ClockWatch, RemembersABoundedNumberOfPeers) {
  clock_watch watch{{.peers_max = 3}};
  for (std::uint8_t i = 1; i < 200; ++i)
    (void)watch.compared(peer(i), 0s, start + i * 1s);
  EXPECT_THAT(watch.compared(peer(200), -61s, start + 300s), Optional(HasSubstr("no link")));
  EXPECT_THAT(watch.compared(peer(201), -61s, start + 301s), Optional(HasSubstr("2 of 3 peers")));
}

TEST(ClockJumps, OnlyWhatTheTimeThatPassedDoesNotExplain) {
  clock_jumps jumps;
  steady_time steady{100h};
  swarm_time wall{400'000h};
  auto after = [&](swarm_clock::duration passed, swarm_clock::duration jump) {
    steady += std::chrono::duration_cast<steady_time::duration>(passed);
    wall += passed + jump;
    return jumps.look(steady, wall);
  };
  EXPECT_FALSE(after(0s, 0s));
  EXPECT_FALSE(after(100ms, 5ms));
  EXPECT_EQ(after(100ms, 120s), swarm_clock::duration{120s});
  EXPECT_FALSE(after(100ms, 0s)) << "it is told once";
  EXPECT_EQ(after(1h, -3600s), swarm_clock::duration{-3600s});
}

} // namespace
} // namespace waggle::net
