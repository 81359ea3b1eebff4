// A step that looks for a group, and waits with it, before the caller begins its round.

#include "tests/actors/moshpit_averager/moshpit_fixture.hpp"

namespace waggle::testing {
namespace {

TEST_F(MoshpitAverager, ASearchBeginsAheadAndTheRoundTriggersIt) {
  found();
  see({5, 5});
  expect(5, 2s);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_TRUE(steps[0].require_trigger);
  EXPECT_EQ(steps[0].values, nullptr);
  EXPECT_EQ(steps[0].elements, values);
  EXPECT_EQ(steps[0].scheduled_in, 2s);
  EXPECT_TRUE(steps[0].calls_members);
  EXPECT_TRUE(steps[0].deltas);
  expect(5, 1s);
  EXPECT_EQ(steps.size(), 1U) << "it goes on";
  pass(1s);
  auto round = average(5);
  EXPECT_EQ(steps.size(), 1U);
  ASSERT_EQ(triggers.size(), 1U);
  EXPECT_EQ(triggers[0].step, steps[0].step);
  ASSERT_NE(triggers[0].values, nullptr);
  EXPECT_EQ(triggers[0].weight, 1.0);
  EXPECT_EQ(triggers[0].deadline, 60s) << "of the round, from now on";
  end_step(mean_of(3));
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
  EXPECT_EQ(round.get()->group.epoch, epoch_id{6});
  auto second = average(6);
  EXPECT_EQ(steps.size(), 2U) << "not expected: the search begins with the round";
  EXPECT_FALSE(steps[1].require_trigger);
  end_step(mean_of(3));
}

TEST_F(MoshpitAverager, AMemberThatIsSlowToItsBoundaryIsCalledByTheFirstThatBegins) {
  found();
  see({5, 5});
  expect(5);
  pass(1s);
  EXPECT_TRUE(calls.empty());
  another_member_begins();
  EXPECT_EQ(calls, (std::vector{epoch_id{5}}));
  auto round = average(5);
  EXPECT_EQ(triggers.size(), 1U) << "at once, whether its boundary is near or not";
  EXPECT_TRUE(cancelled.empty());
  end_step(mean_of(3));
  EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
}

TEST_F(MoshpitAverager, WhoDoesNotBeginWhenCalledLeavesTheGroupBeforeItLooksStalled) {
  found();
  see({5, 5});
  expect(5);
  another_member_begins();
  ASSERT_GT(averaging_config{}.round.stall_timeout, 2s);
  pass(990ms);
  EXPECT_TRUE(cancelled.empty());
  pass(20ms);
  EXPECT_EQ(cancelled, (std::vector<std::uint64_t>{1})) << "the others are told, and go on";
  end_step(failed(ec::cancelled));
  auto round = average(5);
  EXPECT_EQ(steps.size(), 2U) << "the round looks for another group";
  EXPECT_TRUE(triggers.empty());
  end_step(mean_of(2));
  EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
}

TEST_F(MoshpitAverager, AStepAheadWaitsForTwoMatchmakingTimesAtMost) {
  found();
  see({5, 5});
  expect(5);
  pass(5900ms);
  EXPECT_TRUE(cancelled.empty());
  pass(200ms);
  EXPECT_EQ(cancelled, (std::vector<std::uint64_t>{1}));
  end_step(failed(ec::cancelled));
  ASSERT_EQ(views.size(), 1U) << "no epoch has ended";
  expect(5);
  EXPECT_EQ(steps.size(), 2U) << "it may be repeated";
}

TEST_F(MoshpitAverager, ASearchAheadThatGoesOnLastsTwoMatchmakingTimesFromTheRound) {
  found();
  see({5, 5});
  expect(5);
  pass(3s);
  auto round = average(5);
  pass(5900ms);
  EXPECT_TRUE(cancelled.empty());
  pass(200ms);
  ASSERT_EQ(cancelled, (std::vector<std::uint64_t>{1}));
  end_step(failed(ec::cancelled));
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.why.code, ec::too_few);
  EXPECT_EQ(steps.size(), 1U) << "long enough: the epoch ends without a change";
}

TEST_F(MoshpitAverager, ASearchAheadThatFindsNobodyIsNoFailedRound) {
  found();
  see({5, 5});
  expect(5);
  end_step(failed(ec::nobody_declared));
  EXPECT_EQ(views.size(), 1U) << "no epoch has ended";
  auto round = average(5);
  ASSERT_EQ(steps.size(), 2U) << "the round searches again";
  EXPECT_NE(steps[1].values, nullptr);
  end_step(mean_of(3));
  EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
  EXPECT_EQ(round.get()->group.epoch, epoch_id{6});
}

TEST_F(MoshpitAverager, AStepAheadThatEndsAsItsRoundBeginsIsRepeated) {
  found();
  see({5, 5});
  expect(5);
  pass(2s);
  auto round = average(5);
  pass(1s);
  end_step(failed(ec::lost_quorum)); // the trigger was too late
  EXPECT_FALSE(round.answered());
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].deadline, 59s);
  end_step(failed(ec::too_few));
  ASSERT_TRUE(round.get().ok()) << "once";
  EXPECT_EQ(round.get()->report.why.code, ec::too_few);
}

TEST_F(MoshpitAverager, ARoundThatFailedInAGroupFoundAheadHasFailed) {
  found();
  see({5, 5});
  expect(5);
  auto round = average(5);
  auto report = failed(ec::lost_quorum);
  report.round.bytes.fill(std::byte{1});
  end_step(report);
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.why.code, ec::lost_quorum);
  EXPECT_EQ(steps.size(), 1U);
}

TEST_F(MoshpitAverager, AloneItDoesNotSearchAhead) {
  found();
  expect(5);
  EXPECT_TRUE(steps.empty());
  see({5, 5});
  expect(5);
  EXPECT_EQ(steps.size(), 1U);
  see({});
  EXPECT_EQ(cancelled.size(), 1U) << "the others have left";
  end_step(failed(ec::cancelled));
  auto round = average(5);
  ASSERT_TRUE(round.answered());
  EXPECT_EQ(round.get()->report.group_size, 1U);
  EXPECT_EQ(steps.size(), 1U);
}

TEST_F(MoshpitAverager, WhoLeavesOrExpectsNoRoundTellsItsGroup) {
  found();
  see({5, 5});
  expect(5);
  expect(5, std::nullopt);
  EXPECT_EQ(cancelled, (std::vector<std::uint64_t>{1}));
  expect(5);
  EXPECT_EQ(steps.size(), 1U) << "the averager is still busy";
  end_step(failed(ec::cancelled));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_TRUE(steps[1].require_trigger);
  tell(actor, quit_group{});
  EXPECT_EQ(cancelled, (std::vector<std::uint64_t>{1, 2}));
  end_step(failed(ec::cancelled));
  expect(5);
  EXPECT_EQ(steps.size(), 2U) << "in no group";
}

TEST_F(MoshpitAverager, WhenTheRunGoesOnAWaitingPeerBeginsItsRound) {
  found();
  see({5, 5});
  expect(5);
  see({6, 5});
  EXPECT_TRUE(calls.empty()) << "one peer alone is not the run";
  see({6, 6});
  EXPECT_EQ(calls, (std::vector{epoch_id{5}})) << "the others have averaged";
  EXPECT_TRUE(cancelled.empty());
  auto round = average(5);
  EXPECT_EQ(triggers.size(), 1U);
  end_step(mean_of(3));
  EXPECT_EQ(round.get()->group.epoch, epoch_id{6});
}

TEST_F(MoshpitAverager, WhileTheAveragerIsBusyNothingHoldsThePeerAtItsEpoch) {
  found();
  see({5, 5});
  auto left = average(5);
  tell(actor, quit_group{});
  found();
  see({5, 5});
  auto before = views.size();
  expect(5);
  EXPECT_EQ(steps.size(), 1U);
  see({6, 6});
  EXPECT_TRUE(calls.empty()) << "it has no group to begin with";
  ASSERT_EQ(views.size(), before + 1);
  EXPECT_EQ(views.back().epoch, epoch_id{6});
  end_step(failed(ec::cancelled));
  EXPECT_EQ(steps.size(), 1U);
  expect(6);
  EXPECT_EQ(steps.size(), 2U);
}

TEST_F(MoshpitAverager, APeerThatTheRunHasLeftBehindWaitsNoLonger) {
  found();
  see({5, 5});
  expect(5);
  see({7, 7});
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(cancelled, (std::vector<std::uint64_t>{1}));
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[1].epoch, epoch_id{7}) << "the listener goes there";
  end_step(failed(ec::cancelled));
  expect(5);
  EXPECT_EQ(steps.size(), 1U) << "of an epoch that is over";
  expect(7);
  EXPECT_EQ(steps.size(), 2U);
}

} // namespace
} // namespace waggle::testing
