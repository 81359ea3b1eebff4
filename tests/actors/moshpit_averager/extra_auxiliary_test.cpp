// An auxiliary in many groups: it reduces for one after another.

#include "tests/actors/moshpit_averager/moshpit_fixture.hpp"

namespace waggle::testing {
namespace {

struct ExtraAuxiliary : moshpit_fixture {
  ExtraAuxiliary() : moshpit_fixture(true) {}

  static round_report mean_of_value(float value) {
    auto report = mean_of(2);
    report.values = std::make_shared<float_vector>(values, value);
    return report;
  }
};

TEST_F(ExtraAuxiliary, ReducesForOneGroupAfterAnotherWithoutValues) {
  found();
  see({5, 5});
  EXPECT_TRUE(steps.empty()) << "the trainer has not asked yet";
  auto searched = search(5);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_FALSE(steps[0].require_trigger);
  EXPECT_EQ(steps[0].values, nullptr);
  EXPECT_EQ(steps[0].elements, values);
  EXPECT_FALSE(steps[0].allow_retries);
  end_step(mean_of(2));
  EXPECT_EQ(steps.size(), 2U) << "at once";
  EXPECT_EQ(steps[1].epoch, steps[0].epoch) << "peers meet whatever their epochs";
  EXPECT_NE(steps[1].step, steps[0].step);
  EXPECT_FALSE(searched.answered()) << "the run is at this epoch still";
}

TEST_F(ExtraAuxiliary, ItsEpochIsTheRunsAndItsParametersAreTheLastMean) {
  found();
  see({5, 5});
  auto searched = search(5);
  end_step(mean_of_value(3));
  end_step(mean_of_value(4));
  see({6, 5});
  EXPECT_FALSE(searched.answered()) << "one peer alone is not the run";
  see({7, 7});
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  auto round = *searched.get()->ended;
  EXPECT_EQ(round.report.outcome, round_outcome::complete);
  EXPECT_EQ(round.report.values->front(), 4.0F);
  EXPECT_EQ(round.group.epoch, epoch_id{7});
  EXPECT_TRUE(round.group.member);
  EXPECT_TRUE(cancelled.empty()) << "the group that it may be in goes on";
}

TEST_F(ExtraAuxiliary, AMeanCountsForOneEpochOnly) {
  found();
  see({5, 5});
  auto first = search(5);
  end_step(mean_of(2));
  see({6, 6});
  EXPECT_EQ(first.get()->ended->report.outcome, round_outcome::complete);
  auto second = search(6);
  see({7, 7});
  ASSERT_TRUE(second.get().ok() && second.get()->ended);
  EXPECT_EQ(second.get()->ended->report.why.code, ec::too_few) << "no group needed it";
  EXPECT_EQ(steps.size(), 2U) << "the search goes on over the end of an epoch";
}

TEST_F(ExtraAuxiliary, ARoundThatFailsIsNoMeanAndTheNextSearchWaits) {
  found();
  see({5, 5});
  auto searched = search(5);
  end_step(failed(ec::timeout));
  EXPECT_EQ(steps.size(), 1U);
  pass(600ms);
  EXPECT_EQ(steps.size(), 2U);
  see({6, 6});
  EXPECT_EQ(searched.get()->ended->report.outcome, round_outcome::failed);
}

TEST_F(ExtraAuxiliary, ARoundWithoutContributionsReplacesNoMean) {
  found();
  see({5, 5});
  auto searched = search(5);
  end_step(mean_of_value(3));
  auto empty = mean_of(2);
  empty.values = nullptr;
  end_step(empty);
  EXPECT_EQ(steps.size(), 2U) << "the next search waits";
  see({6, 6});
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  EXPECT_EQ(searched.get()->ended->report.values->front(), 3.0F);
}

TEST_F(ExtraAuxiliary, NoSearchTakesTheTimeOfItsRound) {
  found();
  see({5, 5});
  auto searched = search(5); // with 60 s for a round
  pass(59s);
  EXPECT_TRUE(cancelled.empty()) << "as long as an epoch may last";
  pass(2s);
  EXPECT_EQ(cancelled, (std::vector{steps[0].step}));
  EXPECT_GE(steps[0].deadline, 120s);
  end_step(failed(ec::cancelled));
  pass(1s);
  ASSERT_EQ(steps.size(), 2U);
  stage = step_stage::running_allreduce;
  pass(61s);
  EXPECT_EQ(cancelled.size(), 1U) << "a round that has begun goes on";
  EXPECT_FALSE(searched.answered());
}

TEST_F(ExtraAuxiliary, WaitsForPeersThatTrain) {
  found();
  auto searched = search(5);
  EXPECT_TRUE(steps.empty());
  EXPECT_FALSE(searched.answered());
  see({5, 5});
  EXPECT_EQ(steps.size(), 1U);
}

TEST_F(ExtraAuxiliary, QuittingEndsTheSearchAndForgetsTheMean) {
  found();
  see({5, 5});
  auto searched = search(5);
  end_step(mean_of(2));
  tell(actor, quit_group{});
  EXPECT_EQ(cancelled, (std::vector{steps[1].step}));
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  EXPECT_EQ(searched.get()->ended->report.why.code, ec::cancelled);
  found(); // another history, as far as the averager knows
  auto second = search(5);
  end_step(failed(ec::cancelled));
  pass(1s);
  EXPECT_EQ(steps.size(), 3U);
  see({6, 6});
  EXPECT_EQ(second.get()->ended->report.outcome, round_outcome::failed);
}

} // namespace
} // namespace waggle::testing
