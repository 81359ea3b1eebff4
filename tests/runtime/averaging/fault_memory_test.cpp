#include "runtime/averaging/fault_memory.hpp"

#include <gtest/gtest.h>

#include "tests/support/ids.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;

const peer_id ann = id_of(1);
const peer_id bob = id_of(2);
const peer_id eve = id_of(3);
constexpr std::size_t many = 10; // members of our group
const steady_time t0 = steady_time{} + 1h;

struct FaultMemory : ::testing::Test {
  /// How long a fault excludes; 0: not at all.
  milliseconds fault(ec reason, steady_time now, const peer_id& who = eve) {
    auto out = memory.add(who, reason, now);
    return out ? out->lasts : 0ms;
  }
  milliseconds silence(steady_time now, const peer_id& who = eve) {
    return fault(ec::stalled, now, who);
  }

  bool excludes(const peer_id& who, std::size_t group_size, steady_time now) const {
    return memory.excluded_for(who, group_size, now) != fault_kind::none;
  }

  fault_memory memory;
};

TEST_F(FaultMemory, OneSilenceExcludesNobody) {
  EXPECT_EQ(silence(t0), 0ms);
  EXPECT_FALSE(excludes(eve, many, t0));
}

TEST_F(FaultMemory, FurtherSilencesExcludeForATimeThatDoublesUpToTheLongest) {
  silence(t0);
  auto now = t0;
  for (auto expected : {5s, 10s, 20s, 40s, 80s, 160s, 320s, 600s, 600s, 600s}) {
    EXPECT_EQ(silence(now), expected);
    EXPECT_TRUE(excludes(eve, many, now));
    EXPECT_TRUE(excludes(eve, many, now + expected - 1ms));
    now += expected;
    EXPECT_FALSE(excludes(eve, many, now));
  }
}

TEST_F(FaultMemory, LeavingAgainAndAgainExcludesLikeSilence) {
  auto leave = [&](steady_time now) {
    auto out = memory.add(eve, fault_kind::left, now);
    return out ? out->lasts : 0ms;
  };
  EXPECT_EQ(leave(t0), 0ms) << "anybody may leave";
  EXPECT_EQ(silence(t0), 0ms) << "which is not the second silence";
  EXPECT_EQ(leave(t0), 5s);
  EXPECT_TRUE(excludes(eve, many, t0 + 5s - 1ms));
  EXPECT_FALSE(excludes(eve, many, t0 + 5s));
  memory.completed_with(eve, t0 + 2min);
  memory.retract_silence(eve, t0 + 2min);
  EXPECT_EQ(leave(t0 + 2min), 10s);
  EXPECT_EQ(leave(t0 + 20min), 0ms) << "long after the last time";
}

TEST_F(FaultMemory, ASlowMemberStaysOutAtOnceAndForLongerEachTime) {
  auto slow = [&](steady_time now) {
    auto excluded = memory.add(eve, fault_kind::slow, now);
    return excluded ? excluded->lasts : 0ms;
  };
  EXPECT_EQ(slow(t0), 60s);
  EXPECT_EQ(memory.excluded_for(eve, many, t0), fault_kind::slow);
  EXPECT_EQ(memory.excluded_for(eve, many, t0 + 60s), fault_kind::none);
  memory.completed_with(eve, t0 + 10min);
  EXPECT_EQ(slow(t0 + 10min), 120s);
  EXPECT_EQ(slow(t0 + 80min), 60s) << "long after the last time";
}

TEST_F(FaultMemory, ASilenceLongAfterTheLastOneIsTheFirstAgain) {
  silence(t0);
  EXPECT_EQ(silence(t0 + 10min), 0ms);
  EXPECT_EQ(silence(t0 + 20min - 1ms), 5s);
  // The time of the exclusion does not count.
  EXPECT_EQ(silence(t0 + 30min), 10s);
  EXPECT_EQ(silence(t0 + 40min + 10s), 0ms);
}

TEST_F(FaultMemory, AWrongMemberIsExcludedAtOnceAndLonger) {
  for (auto reason : {ec::unequal_results, ec::wrong_sum, ec::protocol_violation, ec::bad_signature,
                      ec::non_finite, ec::wrong_shape, ec::implausible_norm}) {
    memory = fault_memory{};
    EXPECT_EQ(fault(reason, t0), 30s);
    EXPECT_EQ(fault(reason, t0 + 30s), 60s);
  }
  auto now = t0 + 90s;
  for (auto expected : {2min, 4min, 8min, 16min, 32min, 60min, 60min}) {
    EXPECT_EQ(fault(ec::non_finite, now), expected);
    now += expected;
  }
  EXPECT_EQ(fault(ec::non_finite, now + 1h), 30s);
}

TEST_F(FaultMemory, LostConnectionsAndUncertainCausesAreNoFaults) {
  for (auto reason : {ec::peer_lost, ec::unreachable, ec::shutting_down, ec::cancelled,
                      ec::not_looking, ec::excluded, ec::bad_weight, ec::lost_quorum}) {
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(fault(reason, t0), 0ms) << to_string(reason);
    EXPECT_EQ(memory.size(), 0U);
  }
}

TEST_F(FaultMemory, CompletedRoundsForgetSilencesOneAMinute) {
  silence(t0);
  silence(t0);                          // 5 s
  EXPECT_EQ(silence(t0 + 5s), 10s);     // until 15 s
  memory.completed_with(eve, t0 + 20s); // too soon
  memory.completed_with(eve, t0 + 75s);
  memory.completed_with(eve, t0 + 80s); // too soon after the last
  EXPECT_EQ(silence(t0 + 80s), 10s);    // otherwise 20 s
}

TEST_F(FaultMemory, TheFirstSilenceIsNotForgottenByRounds) {
  silence(t0);
  for (auto later = 1min; later < 9min; later += 1min)
    memory.completed_with(eve, t0 + later);
  EXPECT_EQ(silence(t0 + 9min), 5s);
}

TEST_F(FaultMemory, AMemberThatIsSilentInEveryOtherRoundIsExcludedForLongerAndLonger) {
  auto now = t0;
  int silences = 0;
  while (now < t0 + 1h) {
    if (excludes(eve, many, now)) {
      now += 1s;
      continue;
    }
    silence(now + 5s); // after the stall timeout
    ++silences;
    memory.completed_with(eve, now + 6s);
    now += 7s;
  }
  EXPECT_LE(silences, 14);
}

TEST_F(FaultMemory, CompletedRoundsDoNotForgetWhatWasWrong) {
  fault(ec::unequal_results, t0);
  for (auto later = 1min; later < 50min; later += 1min)
    memory.completed_with(eve, t0 + later);
  EXPECT_EQ(fault(ec::unequal_results, t0 + 50min), 60s);
}

TEST_F(FaultMemory, ADeadLinkExplainsASilenceJustBefore) {
  silence(t0);
  silence(t0 + 1s);
  EXPECT_TRUE(excludes(eve, many, t0 + 2s));
  memory.retract_silence(eve, t0 + 2s);
  EXPECT_FALSE(excludes(eve, many, t0 + 2s));
  EXPECT_EQ(silence(t0 + 3s), 5s); // as if the second one had not been
  memory.retract_silence(eve, t0 + 14s);
  EXPECT_EQ(silence(t0 + 14s), 10s); // not if it was long before
}

TEST_F(FaultMemory, IfMostAreExcludedNobodyIsForLong) {
  for (const auto& who : {ann, bob}) {
    silence(t0, who);
    for (int i = 0; i < 6; ++i)
      silence(t0, who); // the last one for 160 s
  }
  EXPECT_EQ(memory.excluded(3, t0 + 31s), (std::vector<peer_id>{ann, bob}));
  EXPECT_EQ(memory.excluded(2, t0 + 29s), (std::vector<peer_id>{ann, bob}));
  EXPECT_TRUE(memory.excluded(2, t0 + 30s).empty());
  EXPECT_TRUE(memory.excluded(1, t0 + 30s).empty()); // we would be alone
  fault(ec::non_finite, t0, ann);
  fault(ec::non_finite, t0, ann);
  EXPECT_TRUE(excludes(ann, 3, t0 + 59s));
  EXPECT_FALSE(excludes(ann, 2, t0 + 30s));
}

// Two honest peers with a bad link between them.
TEST_F(FaultMemory, APairTriesAgainAfterHalfAMinute) {
  auto now = t0;
  for (int i = 0; i < 100; ++i) {
    silence(now, bob);
    EXPECT_FALSE(excludes(bob, 1, now + 30s)) << i;
    now += 35s;
  }
}

TEST_F(FaultMemory, IsBoundedAndForgetsTheExclusionThatEndedTheLongestAgo) {
  fault_memory::limits small{.peers_max = 2};
  memory = fault_memory{small};
  fault(ec::non_finite, t0, ann);      // until 30 s
  silence(t0 + 20s, bob);              // never excluded
  fault(ec::non_finite, t0 + 1s, eve); // bob goes
  EXPECT_EQ(memory.size(), 2U);
  EXPECT_TRUE(excludes(ann, many, t0 + 29s));
  EXPECT_TRUE(excludes(eve, many, t0 + 29s));
  EXPECT_EQ(silence(t0 + 21s, bob), 0ms); // ann goes
  EXPECT_FALSE(excludes(ann, many, t0 + 29s));
}

} // namespace
} // namespace waggle
