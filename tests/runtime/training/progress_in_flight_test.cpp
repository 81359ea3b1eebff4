#include "runtime/training/strategies/progress_in_flight.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using ::testing::ElementsAre;

const float_vector anchor{0, 0};

/// Of two parameters, and a buffer.
struct ProgressInFlight : ::testing::Test {
  progress_in_flight progress{fragments::one_of(2), 1, true};

  void step(std::uint64_t samples, double loss = 1) {
    progress.add(samples, loss, "after " + std::to_string(samples));
  }
};

TEST_F(ProgressInFlight, DepartsWithItsSamplesAndLossesOnceAtATime) {
  EXPECT_FALSE(progress.may_depart()) << "there is none";
  step(4, 2);
  auto sent = std::make_shared<float_vector>(3);
  const auto& copy = progress.depart({1, 2, 0}, sent);
  EXPECT_EQ(copy.samples, 4U);
  EXPECT_EQ(copy.losses.sum, 8);
  EXPECT_EQ(progress.taken_position(), "after 4");
  step(5);
  EXPECT_EQ(progress.samples(), 5U);
  EXPECT_FALSE(progress.may_depart()) << "a copy flies";
  auto landed = progress.land();
  ASSERT_TRUE(landed);
  EXPECT_THAT(landed->theta, ElementsAre(1, 2, 0));
  EXPECT_EQ(landed->sent, sent);
  EXPECT_TRUE(progress.may_depart());
  EXPECT_FALSE(progress.land());
}

TEST_F(ProgressInFlight, LossesThatALoopDoesNotGiveAreNotCounted) {
  step(4, std::numeric_limits<double>::quiet_NaN());
  auto silent = progress.depart({1, 2, 0}, nullptr).losses;
  EXPECT_EQ(loss_in(silent.per_sample(4)), plateau::unknown_loss);
  progress.land();
  step(1, 2);
  step(3, std::numeric_limits<double>::quiet_NaN());
  auto own = progress.depart({1, 2, 0}, nullptr).losses.per_sample(4);
  EXPECT_EQ(own[1], 0.25F);
  auto mean = own; // with the silent one, which weighs as much
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = (own[i] + silent.per_sample(4)[i]) / 2;
  EXPECT_EQ(loss_in(mean), 2);
}

TEST_F(ProgressInFlight, ThatIsTakenBackCountsWithTheStepsSince) {
  EXPECT_EQ(progress.take_back(), 0U);
  step(4, 2);
  progress.depart({1, 2, 0}, nullptr);
  step(5, 1);
  EXPECT_EQ(progress.take_back(), 4U);
  const auto& copy = progress.depart({3, 4, 0}, nullptr);
  EXPECT_EQ(copy.samples, 9U);
  EXPECT_EQ(copy.losses.sum, 13);
  EXPECT_EQ(copy.losses.samples, 9);
}

TEST_F(ProgressInFlight, GoesBackToTheAnchorOrToTheCopyThatFliesAfterADrop) {
  EXPECT_FALSE(progress.undo(anchor)) << "nothing was dropped";
  EXPECT_EQ(progress.drop("at 0"), 0U);
  EXPECT_FALSE(progress.is_dropped()) << "there were no steps";
  step(4);
  EXPECT_EQ(progress.drop("at 4"), 4U);
  EXPECT_EQ(progress.taken_position(), "at 4");
  EXPECT_TRUE(progress.is_dropped());
  EXPECT_FALSE(progress.may_depart());
  EXPECT_EQ(progress.undo(anchor), anchor);
  step(4);
  progress.depart({1, 2, 0}, nullptr);
  step(5);
  progress.drop("at 9");
  EXPECT_THAT(*progress.undo(anchor), ElementsAre(1, 2, 0));
  EXPECT_TRUE(progress.land()) << "the copy still flies";
}

TEST_F(ProgressInFlight, ACopyThatIsTakenBackAfterADropIsWhereItGoesBackTo) {
  step(4);
  progress.depart({1, 2, 0}, nullptr);
  step(5);
  progress.drop("at 9");
  EXPECT_EQ(progress.take_back(), 4U);
  EXPECT_FALSE(progress.may_depart()) << "the steps after it are still in the parameters";
  EXPECT_THAT(*progress.undo(anchor), ElementsAre(1, 2, 0));
  EXPECT_TRUE(progress.may_depart());
}

TEST_F(ProgressInFlight, StaysWhenAStateIsLoadedUnlessItWasDropped) {
  EXPECT_FALSE(progress.reload(anchor).any);
  step(4);
  auto kept = progress.reload(anchor);
  EXPECT_TRUE(kept.any);
  EXPECT_FALSE(kept.from);
  progress.depart({1, 2, 0}, nullptr);
  step(5);
  progress.drop("at 9");
  progress.take_back();
  kept = progress.reload(anchor);
  EXPECT_TRUE(kept.any);
  EXPECT_THAT(*kept.from, ElementsAre(1, 2, 0));
  EXPECT_FALSE(progress.is_dropped());
  progress.drop("at 9");
  EXPECT_FALSE(progress.reload(anchor).any);
}

TEST_F(ProgressInFlight, SurvivesARestart) {
  EXPECT_FALSE(progress.save(anchor, anchor).sum) << "there is none";
  for (bool flies : {false, true}) {
    step(4, 2);
    if (flies)
      progress.depart({1, 2, 0}, nullptr);
    step(5, 1);
    auto saved = progress.save(float_vector{3, 4}, anchor);
    progress_in_flight next{fragments::one_of(2), 1, true};
    EXPECT_THAT(*next.load(saved, "after 5"), ElementsAre(3, 4));
    EXPECT_EQ(next.samples(), progress.samples());
    EXPECT_EQ(next.take_back(), flies ? progress.land()->samples : 0);
    EXPECT_EQ(next.depart({3, 4, 0}, nullptr).losses.sum, 13);
    if (!flies)
      progress.drop("");
    progress.undo(anchor);
  }
}

TEST_F(ProgressInFlight, WithoutAStepSurvivesARestartToo) {
  auto saved = progress.save(float_vector{3, 4}, anchor); // a merge has left θ beside the anchor
  ASSERT_TRUE(saved.sum);
  EXPECT_EQ(saved.samples, 0U);
  progress_in_flight next{fragments::one_of(2), 1, true};
  EXPECT_THAT(*next.load(saved, ""), ElementsAre(3, 4));
  EXPECT_FALSE(next.may_depart());
}

TEST_F(ProgressInFlight, ACopyThatFliesSurvivesARestartWithoutAStepSince) {
  step(4, 2);
  progress.depart({1, 2, 0}, nullptr);
  progress_in_flight next{fragments::one_of(2), 1, true};
  ASSERT_TRUE(next.load(progress.save(float_vector{1, 2}, anchor), "").ok());
  EXPECT_EQ(next.samples(), 0U);
  EXPECT_THAT(next.land()->theta, ElementsAre(1, 2, 0));
}

TEST_F(ProgressInFlight, StepsThatWereDroppedAreNotKeptOverARestart) {
  step(4);
  progress.drop("");
  EXPECT_FALSE(progress.save(float_vector{3, 4}, anchor).sum);
  progress.undo(anchor);
  step(4);
  progress.depart({1, 2, 0}, nullptr);
  step(5);
  progress.drop("");
  progress.take_back();
  auto saved = progress.save(float_vector{3, 4}, anchor);
  progress_in_flight next{fragments::one_of(2), 1, true};
  EXPECT_THAT(*next.load(saved, ""), ElementsAre(1, 2));
  EXPECT_EQ(next.samples(), 4U);
}

TEST_F(ProgressInFlight, OfAnotherLengthOrWithImpossibleLossesIsRefused) {
  step(4);
  auto saved = progress.save(float_vector{3, 4}, anchor);
  progress_in_flight next{fragments::one_of(3), 0, true};
  EXPECT_EQ(next.load(saved, "").error().code, ec::malformed);
  EXPECT_EQ(progress.load({}, "").error().code, ec::malformed);
  auto impossible = std::make_shared<float_vector>(*saved.sum);
  impossible->back() = -1; // the upper half of a number of samples
  saved.sum = impossible;
  progress_in_flight same{fragments::one_of(2), 1, true};
  EXPECT_EQ(same.load(saved, "").error().code, ec::malformed);
  EXPECT_EQ(same.samples(), 0U);
}

} // namespace
} // namespace waggle
