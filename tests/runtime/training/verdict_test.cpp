#include "runtime/training/verdict.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

constexpr auto gradients = lane_content::gradient;
constexpr auto parameters = lane_content::parameters;
constexpr auto progress = lane_content::progress;

round_facts failed(std::uint64_t own_samples) {
  round_facts facts;
  facts.own_samples = own_samples;
  return facts;
}

TEST(Verdict, AMeanIsMergedWithAndWithoutOwnSamples) {
  for (std::uint64_t samples : {0, 8})
    for (auto averaged : {gradients, parameters, progress}) {
      auto facts = failed(samples);
      facts.contributors = 1;
      EXPECT_EQ(on_round(averaged, facts), verdict::merge);
      facts.run_moved_on = true; // the result arrived first
      EXPECT_EQ(on_round(averaged, facts), verdict::merge);
    }
}

TEST(Verdict, APeerThatWasLeftOutNeverStepsByItself) {
  for (std::uint64_t samples : {0, 8})
    for (bool excluded : {false, true}) {
      auto facts = failed(samples);
      facts.excluded = excluded;
      facts.run_moved_on = !excluded;
      facts.others_remain = facts.time_left = true; // even if a retry were possible
      EXPECT_EQ(on_round(gradients, facts), verdict::left_out);
      EXPECT_EQ(on_round(progress, facts), verdict::left_out); // the anchors differ now
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
