#include "runtime/allreduce/round_watch.hpp"

#include <gtest/gtest.h>

#include "runtime/averaging/patience.hpp"

namespace waggle {
namespace {

constexpr steady_time t0{};

/// A round of four members whose result is complete here since t0; the stall timeout is 1 s.
struct RoundWatch : ::testing::Test {
  RoundWatch() : config(with_a_second()), watch(4, config, t0) {}

  static round_config with_a_second() { return round_config{.stall_timeout = 1s}; }
  member_set stalled(steady_time now, std::initializer_list<std::size_t> awaited, bool leads) {
    round_watch::agreement known;
    for (auto member : awaited)
      known.awaited.insert(member);
    known.participants = 4;
    known.leads = leads;
    known.written = [this](std::size_t member) { return written[member]; };
    return watch.stalled(known, now);
  }
  static member_set only(std::size_t member) {
    member_set set;
    set.insert(member);
    return set;
  }

  round_config config;
  round_watch watch;
  std::uint64_t written[4] = {};
};

TEST_F(RoundWatch, ALeaderGivesAMemberUpBeforeItsFollowersDo) {
  EXPECT_TRUE(stalled(t0 + 2999ms, {2}, true).empty());
  EXPECT_EQ(stalled(t0 + 3s, {2}, true), only(2));
  EXPECT_TRUE(stalled(t0 + 4999ms, {2}, false).empty());
  EXPECT_EQ(stalled(t0 + 5s, {2}, false), only(2));
}

TEST_F(RoundWatch, ASlowMemberIsAwaitedForItsOwnPatience) {
  round_watch::agreement known;
  known.awaited = known.slow = only(2);
  known.awaited.insert(1);
  known.participants = 4;
  known.leads = true;
  known.written = [](std::size_t) { return std::uint64_t{0}; };
  EXPECT_TRUE(watch.stalled(known, t0 + 3 * patience_with_slow - 1ms).empty());
  EXPECT_EQ(watch.stalled(known, t0 + 3 * patience_with_slow), only(2));
}

TEST_F(RoundWatch, AMemberThatStillReceivesOurResultsIsNotStalled) {
  written[2] = 1'000;
  EXPECT_TRUE(stalled(t0 + 2s, {2, 1, 3}, true).empty());
  written[2] = 2'000;
  auto found = stalled(t0 + 4s, {2, 1, 3}, true);
  EXPECT_FALSE(found.contains(2));
  EXPECT_TRUE(found.contains(1) && found.contains(3));
}

TEST_F(RoundWatch, ALeaderWaitsOnlyALittleLongerOnceAFollowerWaitsForIt) {
  for (int ms = 0; ms < 4000; ms += 100) {
    ++written[2];
    ASSERT_TRUE(stalled(t0 + milliseconds{ms}, {2}, true).empty()) << ms;
  }
  ++written[2];
  EXPECT_EQ(stalled(t0 + 4s, {2}, true), only(2));
  for (auto& bytes : written)
    ++bytes;
  EXPECT_TRUE(stalled(t0 + 4s, {2, 1, 3}, true).empty()) << "nobody has confirmed";
}

TEST_F(RoundWatch, AViewThatBeginsStartsTheWaitAgain) {
  watch.advanced(t0 + 3s);
  EXPECT_TRUE(stalled(t0 + 5s, {2}, true).empty());
}

TEST_F(RoundWatch, TheFirstFaultCountsUntilTheEnd) {
  EXPECT_EQ(watch.since_fault(t0 + 1s), 0);
  watch.fault(t0 + 1s);
  watch.fault(t0 + 2s);
  EXPECT_EQ(watch.since_fault(t0 + 4s), 3);
  EXPECT_FALSE(watch.is_over(t0 + config.deadline - 1ms));
  EXPECT_TRUE(watch.is_over(t0 + config.deadline));
}

} // namespace
} // namespace waggle
