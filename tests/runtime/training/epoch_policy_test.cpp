#include "runtime/training/epoch_policy.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

training_situation at(std::uint64_t own, std::uint64_t global) {
  training_situation s;
  s.own = epoch_id{own};
  s.global = epoch_id{global};
  s.own_samples = 8;
  return s;
}

TEST(EpochPolicy, AccumulatesUntilTheTargetIsReached) {
  EXPECT_EQ(decide(at(3, 3)), next_step::accumulate);
}

TEST(EpochPolicy, AveragesWithTheOthersAtTheTarget) {
  auto s = at(3, 3);
  s.target_reached = true;
  s.peers_at_epoch = 2;
  EXPECT_EQ(decide(s), next_step::average);
}

TEST(EpochPolicy, StepsAloneWhereNobodyElseIs) {
  auto s = at(3, 3);
  s.target_reached = true;
  EXPECT_EQ(decide(s), next_step::step_alone);
}

TEST(EpochPolicy, NeverStepsWithoutASample) {
  auto s = at(3, 3);
  s.target_reached = true;
  s.own_samples = 0;
  EXPECT_EQ(decide(s), next_step::accumulate);
}

TEST(EpochPolicy, TagsAlongWithoutASample) {
  auto s = at(3, 3);
  s.target_reached = true;
  s.own_samples = 0;
  s.peers_at_epoch = 4;
  EXPECT_EQ(decide(s), next_step::average);
}

TEST(EpochPolicy, TakesTheStateWhenBehindHoweverLittle) {
  for (std::uint64_t behind : {1, 2, 100}) {
    auto s = at(3, 3 + behind);
    s.donors = true;
    s.target_reached = true;
    EXPECT_EQ(decide(s), next_step::sync) << behind;
  }
}

TEST(EpochPolicy, NeverGuessesItsWayForwardWithoutADonor) { // INV-7
  auto s = at(3, 5);
  s.target_reached = true;
  s.peers_at_epoch = 3;
  EXPECT_EQ(decide(s), next_step::accumulate);
}

TEST(EpochPolicy, TakesTheStateWhenItsParametersAreNotTheRuns) {
  auto s = at(3, 3);
  s.parameters_differ = true;
  s.target_reached = true;
  EXPECT_EQ(decide(s), next_step::step_alone); // nobody to take it from
  s.donors = true;
  EXPECT_EQ(decide(s), next_step::sync);
}

TEST(EpochPolicy, FinishesAtItsLastEpochButStillCorrectsItself) {
  auto s = at(10, 10);
  s.max_epochs = 10;
  s.target_reached = true;
  s.peers_at_epoch = 4;
  EXPECT_EQ(decide(s), next_step::finish);
  s.donors = true;
  EXPECT_EQ(decide(s), next_step::finish);
  s.parameters_differ = true;
  EXPECT_EQ(decide(s), next_step::sync);
}

TEST(EpochPolicy, ZeroMaxEpochsHasNoEnd) {
  auto s = at(1'000'000, 1'000'000);
  EXPECT_EQ(decide(s), next_step::accumulate);
}

TEST(SampleAccount, EverySampleIsPendingUsedOrDropped) { // INV-2
  sample_account account;
  account.accumulate(5);
  account.accumulate(3);
  EXPECT_EQ(account.pending, 8U);
  EXPECT_EQ(account.use(), 8U);
  EXPECT_EQ(account.use(), 0U); // never twice
  account.accumulate(4);
  EXPECT_EQ(account.drop(), 4U);
  account.accumulate(1);
  EXPECT_EQ(account.used + account.dropped + account.pending, 13U);
  EXPECT_EQ(account.used, 8U);
  EXPECT_EQ(account.dropped, 4U);
}

TEST(EpochEnd, AMeanIsApplied) {
  EXPECT_EQ(decide(round_verdict{true, false, false, 8}), epoch_end::apply_mean);
  EXPECT_EQ(decide(round_verdict{true, false, false, 0}), epoch_end::apply_mean);
}

TEST(EpochEnd, WithoutOneTheEpochsOwnMeanIs) { // INV-6
  EXPECT_EQ(decide(round_verdict{false, false, false, 8}), epoch_end::apply_own);
}

TEST(EpochEnd, WhoTaggedAlongHasNoneAndGoesOn) {
  EXPECT_EQ(decide(round_verdict{false, false, false, 0}), epoch_end::accumulate);
}

TEST(EpochEnd, WhomTheOthersWentOnWithoutNeverStepsByItself) {
  for (std::uint64_t samples : {0, 8}) {
    EXPECT_EQ(decide(round_verdict{false, true, false, samples}), epoch_end::left_out);
    EXPECT_EQ(decide(round_verdict{false, false, true, samples}), epoch_end::left_out);
  }
}

} // namespace
} // namespace waggle
