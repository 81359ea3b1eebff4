// An auxiliary in many groups: it reduces for one after another.

#include "tests/actors/moshpit_averager/moshpit_fixture.hpp"

namespace waggle::testing {
namespace {

struct ExtraAuxiliary : moshpit_fixture {
  ExtraAuxiliary() : moshpit_fixture(true) {}

  void reduce(round_report report) {
    find_group();
    end_step(std::move(report));
  }
  static round_report mean_of_value(float value) {
    auto report = mean_of(2);
    report.values = std::make_shared<float_vector>(values, value);
    return report;
  }
};

TEST_F(ExtraAuxiliary, ReducesForOneGroupAfterAnotherWithoutValues) {
  found_of_three();
  EXPECT_TRUE(searches.empty()) << "the trainer has not asked yet";
  auto searched = search(5);
  ASSERT_EQ(searches.size(), 1U);
  EXPECT_TRUE(searches[0].one_round);
  EXPECT_EQ(elements_of(searches[0].codecs), values);
  find_group();
  ASSERT_EQ(given.size(), 1U) << "at once";
  EXPECT_EQ(given[0].values, nullptr);
  EXPECT_EQ(given[0].epoch, searches[0].epoch);
  end_step(mean_of(2));
  ASSERT_EQ(searches.size(), 2U) << "at once";
  EXPECT_EQ(searches[1].epoch, searches[0].epoch) << "peers meet whatever their epochs";
  EXPECT_FALSE(searched.answered()) << "the run is at this epoch still";
}

TEST_F(ExtraAuxiliary, ItsEpochIsTheRunsAndItsParametersAreTheLastMean) {
  found_of_three();
  auto searched = search(5);
  reduce(mean_of_value(3));
  reduce(mean_of_value(4));
  see({6, 5});
  EXPECT_FALSE(searched.answered()) << "one peer alone is not the run";
  see({7, 7});
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  auto round = *searched.get()->ended;
  EXPECT_EQ(round.report.outcome, round_outcome::complete);
  EXPECT_EQ(round.report.values->front(), 4.0F);
  EXPECT_EQ(round.group.epoch, epoch_id{7});
  EXPECT_TRUE(round.group.member);
  EXPECT_EQ(cancelled + quits, 0) << "the group that it may be in goes on";
}

TEST_F(ExtraAuxiliary, AMeanCountsForOneEpochOnly) {
  found_of_three();
  auto first = search(5);
  reduce(mean_of(2));
  see({6, 6});
  EXPECT_EQ(first.get()->ended->report.outcome, round_outcome::complete);
  auto second = search(6);
  see({7, 7});
  ASSERT_TRUE(second.get().ok() && second.get()->ended);
  EXPECT_EQ(second.get()->ended->report.why.code, ec::too_few) << "no group needed it";
  EXPECT_EQ(searches.size(), 2U) << "the search goes on over the end of an epoch";
}

TEST_F(ExtraAuxiliary, ARoundThatFailsIsNoMeanAndTheNextSearchWaits) {
  found_of_three();
  auto searched = search(5);
  reduce(failed(ec::timeout));
  EXPECT_EQ(searches.size(), 1U) << "whoever tries again is looking for another group";
  pass(600ms);
  EXPECT_EQ(searches.size(), 2U);
  see({6, 6});
  EXPECT_EQ(searched.get()->ended->report.outcome, round_outcome::failed);
}

TEST_F(ExtraAuxiliary, ARoundWithoutContributionsReplacesNoMean) {
  found_of_three();
  auto searched = search(5);
  reduce(mean_of_value(3));
  auto empty = mean_of(2);
  empty.values = nullptr;
  reduce(empty);
  EXPECT_EQ(searches.size(), 2U) << "the next search waits";
  see({6, 6});
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  EXPECT_EQ(searched.get()->ended->report.values->front(), 3.0F);
}

TEST_F(ExtraAuxiliary, NoSearchTakesTheTimeOfItsRound) {
  found_of_three();
  auto searched = search(5); // with 60 s for a round
  pass(59s);
  EXPECT_EQ(cancelled, 0) << "as long as an epoch may last";
  pass(2s);
  EXPECT_EQ(cancelled, 1);
  EXPECT_GE(searches[0].deadline, 120s);
  end_step(failed(ec::cancelled));
  pass(1s);
  ASSERT_EQ(searches.size(), 2U);
  find_group();
  pass(61s);
  EXPECT_EQ(cancelled, 1) << "a round that has begun goes on";
  EXPECT_FALSE(searched.answered());
}

TEST_F(ExtraAuxiliary, WaitsForPeersThatTrain) {
  found();
  auto searched = search(5);
  EXPECT_TRUE(searches.empty());
  EXPECT_FALSE(searched.answered());
  see({5, 5});
  EXPECT_EQ(searches.size(), 1U);
}

TEST_F(ExtraAuxiliary, QuittingEndsTheSearchAndForgetsTheMean) {
  found_of_three();
  auto searched = search(5);
  reduce(mean_of(2));
  tell(actor, quit_group{});
  EXPECT_EQ(quits, 1);
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  EXPECT_EQ(searched.get()->ended->report.why.code, ec::cancelled);
  found(); // another history, as far as the averager knows
  auto second = search(5);
  end_step(failed(ec::cancelled));
  pass(1s);
  EXPECT_EQ(searches.size(), 3U);
  see({6, 6});
  EXPECT_EQ(second.get()->ended->report.outcome, round_outcome::failed);
}

} // namespace
} // namespace waggle::testing
