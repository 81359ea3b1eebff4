#include "runtime/training/verdict.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/training/streaming.hpp"

namespace waggle {
namespace {

const lane gradients = collaborative(64).lanes.front();
const lane parameters = local_updates(own_steps(10)).lanes.front();
const lane fragment = streaming_diloco({}).lanes.front();

round_facts failed(std::uint64_t own_samples) {
  round_facts facts;
  facts.own_samples = own_samples;
  return facts;
}

TEST(Verdict, AMeanIsMergedWithAndWithoutOwnSamples) {
  for (std::uint64_t samples : {0, 8}) {
    auto facts = failed(samples);
    facts.contributors = 2;
    EXPECT_EQ(on_round(gradients, facts), verdict::merge);
    facts.run_moved_on = true; // the result arrived first
    EXPECT_EQ(on_round(gradients, facts), verdict::merge);
  }
}

TEST(Verdict, AMeanOfFewerThanTheQuorumIsNone) {
  auto facts = failed(0);
  facts.contributors = 1;
  EXPECT_EQ(on_round(gradients, facts), verdict::merge);
  EXPECT_EQ(on_round(fragment, facts), verdict::merge);
  EXPECT_EQ(on_round(parameters, facts), verdict::skip);
  facts.contributors = 2;
  EXPECT_EQ(on_round(parameters, facts), verdict::merge);
}

TEST(Verdict, WithoutContributorsThereIsNoMeanWhateverTheQuorum) { // INV-4
  auto lane = gradients;
  lane.quorum = 0;
  EXPECT_EQ(on_round(lane, failed(8)), verdict::own_gradient);
}

TEST(Verdict, APeerThatWasLeftOutNeverStepsByItself) {
  for (std::uint64_t samples : {0, 8})
    for (bool excluded : {false, true}) {
      auto facts = failed(samples);
      facts.excluded = excluded;
      facts.run_moved_on = !excluded;
      facts.others_remain = facts.time_left = true; // even if a retry were possible
      EXPECT_EQ(on_round(gradients, facts), verdict::left_out);
      EXPECT_EQ(on_round(fragment, facts), verdict::left_out); // the anchors differ now
    }
}

TEST(Verdict, AFailedRoundIsTriedAgainWhileOthersRemainAndTimeIsLeft) {
  for (std::uint64_t samples : {0, 8}) {
    auto facts = failed(samples);
    facts.others_remain = facts.time_left = true;
    EXPECT_EQ(on_round(gradients, facts), verdict::retry);
    facts.time_left = false;
    EXPECT_NE(on_round(gradients, facts), verdict::retry);
    facts.time_left = true;
    facts.others_remain = false;
    EXPECT_NE(on_round(gradients, facts), verdict::retry);
  }
}

TEST(Verdict, AfterARoundThatFailedForGoodTheEpochsOwnMeanCounts) { // INV-6
  EXPECT_EQ(on_round(gradients, failed(8)), verdict::own_gradient);
}

TEST(Verdict, WithoutSamplesThereIsNoGradientToFallBackOn) {
  EXPECT_EQ(on_round(gradients, failed(0)), verdict::skip);
}

TEST(Verdict, AveragedParametersOnlyMissOneRound) {
  for (bool excluded : {false, true}) {
    auto facts = failed(0);
    facts.excluded = facts.run_moved_on = excluded;
    facts.others_remain = facts.time_left = true;
    EXPECT_EQ(on_round(parameters, facts), verdict::skip);
  }
}

} // namespace
} // namespace waggle
