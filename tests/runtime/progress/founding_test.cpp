#include "runtime/progress/founding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::HasSubstr;

/// A peer with initial peers that has reached none of them yet.
founding_situation looking() {
  founding_situation s;
  s.may_start_alone = true;
  s.settle_time = milliseconds{500};
  s.split_grace = milliseconds{1'500};
  return s;
}

TEST(Founding, TheRunsFirstPeerBeginsAtOnce) {
  auto s = looking();
  s.join_timeout = milliseconds{0};
  EXPECT_TRUE(decide_founding(s).now);
  s = looking();
  s.addresses_known = false;
  EXPECT_TRUE(decide_founding(s).now);
  s.connected = true; // a peer has connected: does it train?
  EXPECT_FALSE(decide_founding(s).now);
  s.waited = s.settle_time;
  EXPECT_TRUE(decide_founding(s).now);
}

TEST(Founding, APeerThatReachesNoOtherSearchesForTheJoinTimeoutAndReportsIt) {
  auto s = looking();
  s.waited = milliseconds{14'999};
  auto before = decide_founding(s);
  EXPECT_FALSE(before.now);
  EXPECT_THAT(before.why, HasSubstr("none of the addresses answers"));
  s.waited = s.join_timeout;
  auto after = decide_founding(s);
  EXPECT_TRUE(after.now);
  EXPECT_THAT(after.why, HasSubstr("was reached within 15 s: training alone"));
}

TEST(Founding, WithoutLeaveToStartAloneOnlyAStateOfTheRunGoesOnAlone) {
  auto s = looking();
  s.may_start_alone = false;
  s.waited = milliseconds{1'000'000};
  EXPECT_FALSE(decide_founding(s).now);
  s.has_work = true;
  EXPECT_TRUE(decide_founding(s).now);
}

TEST(Founding, TrainersThatWereSeenAreGivenTimeToReport) {
  auto s = looking();
  s.connected = s.trainers_seen = true;
  EXPECT_FALSE(decide_founding(s).now);
  s.waited = s.settle_time;
  EXPECT_TRUE(decide_founding(s).now);
}

TEST(Founding, NodesThatDoNotTrainAreNotWaitedForLong) {
  auto s = looking();
  s.connected = true;
  s.waited = milliseconds{2'999};
  EXPECT_FALSE(decide_founding(s).now);
  s.waited = milliseconds{3'000};
  EXPECT_TRUE(decide_founding(s).now);
}

TEST(Founding, WhoIsReachedAfterALongSearchIsGivenAsLongToReport) {
  auto s = looking();
  s.connected = true;
  s.waited = s.unheard = milliseconds{20'000};
  EXPECT_FALSE(decide_founding(s).now) << "it may train";
  s.waited += milliseconds{3'000};
  EXPECT_TRUE(decide_founding(s).now) << "it does not";
  s.trainers_seen = true;
  s.waited = s.unheard + s.settle_time;
  EXPECT_TRUE(decide_founding(s).now);
  s.waited -= milliseconds{1};
  EXPECT_FALSE(decide_founding(s).now) << "it trains, and may have begun";
  s.client = s.reducer_connected = true;
  EXPECT_FALSE(decide_founding(s).now);
  s.client = s.addresses_known = false;
  EXPECT_FALSE(decide_founding(s).now);
}

TEST(Founding, ALostGroupIsLookedForAndThenTheOperatorDecides) {
  auto s = looking();
  s.lost_group = true;
  EXPECT_FALSE(decide_founding(s).now);
  s.waited = s.split_grace;
  EXPECT_TRUE(decide_founding(s).now);
  s.continue_on_split = false;
  s.waited = milliseconds{1'000'000};
  auto paused = decide_founding(s);
  EXPECT_FALSE(paused.now);
  EXPECT_THAT(paused.why, HasSubstr("on-split is pause"));
}

TEST(Founding, AClientWaitsForAPeerThatReducesForIt) {
  auto s = looking();
  s.client = s.connected = true;
  s.waited = milliseconds{10'000};
  auto alone = decide_founding(s);
  EXPECT_FALSE(alone.now);
  EXPECT_THAT(alone.why, HasSubstr("a waggle node that reduces"));
  s.reducer_connected = true;
  EXPECT_TRUE(decide_founding(s).now);
  s.reducer_connected = false;
  s.waited = s.join_timeout;
  auto at_last = decide_founding(s);
  EXPECT_TRUE(at_last.now);
  EXPECT_THAT(at_last.why, HasSubstr("no peer that others can reach"));
  s.waited = s.settle_time;
  s.lost_group = true; // its reducer is gone: it continues as other peers do
  s.split_grace = s.settle_time;
  EXPECT_TRUE(decide_founding(s).now);
}

} // namespace
} // namespace waggle
