#include "runtime/training/pass_policy.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

/// We have done a pass of 100 ms; another peer of the same speed has as much left to do as we have.
pass_situation pair() {
  return {.target = 32,
          .own_samples = 16,
          .own_pass = 0.1,
          .epoch = 0.1,
          .others = {{0, 0.1, 0.005, 160, 16}}};
}

TEST(PassPolicy, WaitsForTheOtherPeersPassThatEndsTheEpoch) {
  auto decision = decide_pass(pair());
  EXPECT_FALSE(decision.begin);
  EXPECT_DOUBLE_EQ(decision.wait, 0.055); // half a pass, plus a report's delay
}

TEST(PassPolicy, BeginsWhileTheTargetIsFartherAwayThanHalfAPass) {
  auto now = pair();
  now.others[0].age = 0.04; // it will be done in 60 ms
  EXPECT_TRUE(decide_pass(now).begin);
  now.others[0].age = 0.06;
  EXPECT_FALSE(decide_pass(now).begin);
}

TEST(PassPolicy, BeginsWhileTheOthersAloneDoNotReachTheTarget) {
  auto now = pair();
  now.target = 33;
  EXPECT_TRUE(decide_pass(now).begin);
}

TEST(PassPolicy, BeginsNothingOnceTheTargetIsReached) {
  auto now = pair();
  now.others[0].samples = 16;
  now.others[0].samples_per_second = 0;
  EXPECT_FALSE(decide_pass(now).begin);
}

TEST(PassPolicy, ExpectsAllPassesThatFitBeforeHalfOfOurs) {
  auto now = pair();
  now.target = 16 + 24;
  now.others = {{0, 0.02, 0.001, 400, 8}}; // done now, in 20 ms and in 40 ms
  EXPECT_FALSE(decide_pass(now).begin);
  now.target += 1;
  EXPECT_TRUE(decide_pass(now).begin);
}

TEST(PassPolicy, ExpectsOnlyOneMicroBatchOfAPeerThatIsOverdue) {
  auto now = pair();
  now.others[0].age = 0.29; // two reports are missing
  EXPECT_FALSE(decide_pass(now).begin);
  now.target = 48;
  EXPECT_TRUE(decide_pass(now).begin);
}

TEST(PassPolicy, WaitsForNoPeerWhoseReportIsThreePassesOld) {
  auto now = pair();
  now.others[0].age = 0.309; // 3 · 100 ms, plus 2 · 5 ms of delay
  EXPECT_FALSE(decide_pass(now).begin);
  now.others[0].age = 0.311;
  EXPECT_TRUE(decide_pass(now).begin);
}

TEST(PassPolicy, CountsReportsInFlightOfShortPasses) {
  auto now = pair();
  now.own_pass = 0.002;
  now.target = 16 + 40;
  now.others = {{0, 0.005, 0.005, 4000, 8}}; // reported every 2 ms, 5 to 10 ms in flight
  EXPECT_TRUE(decide_pass(now).begin);
  now.others[0].age = 0.011;
  EXPECT_FALSE(decide_pass(now).begin);
}

TEST(PassPolicy, ExpectsNothingOfAPeerWithoutSpeed) {
  auto now = pair();
  now.others[0].samples_per_second = 0;
  EXPECT_TRUE(decide_pass(now).begin);
}

TEST(PassPolicy, TakesAnUnknownPassToBeAsLongAsOurs) {
  auto now = pair();
  now.others[0].micro_batch = 0;
  EXPECT_FALSE(decide_pass(now).begin);
  now.others[0].age = 0.04;
  EXPECT_TRUE(decide_pass(now).begin);
}

TEST(PassPolicy, APassLongerThanTheEpochsAlwaysBegins) {
  auto now = pair();
  now.epoch = 0.1 / 1.6;
  EXPECT_TRUE(decide_pass(now).begin);
  now.epoch = 0.1 / 1.4;
  EXPECT_FALSE(decide_pass(now).begin);
}

TEST(PassPolicy, BeginsWhenItKnowsNothing) {
  EXPECT_TRUE(decide_pass({}).begin);
  auto now = pair();
  now.own_pass = 0; // our first pass
  EXPECT_TRUE(decide_pass(now).begin);
}

} // namespace
} // namespace waggle
