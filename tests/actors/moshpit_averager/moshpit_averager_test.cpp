#include <cmath>

#include "tests/actors/moshpit_averager/moshpit_fixture.hpp"

namespace waggle::testing {
namespace {

using MoshpitAverager = moshpit_fixture;

TEST_F(MoshpitAverager, EntersAtOnceWhatItsPeersTrain) {
  auto refused = ask<group_view>(actor, enter_group{{record(2)}, branch, 30s});
  EXPECT_EQ(refused.error().code, ec::not_ready) << "no peer trains it";
  see({7, 6, 6});
  auto entered = ask<group_view>(actor, enter_group{{record(2)}, branch, 30s});
  EXPECT_TRUE(entered->member);
  EXPECT_EQ(entered->epoch, epoch_id{6});
  EXPECT_EQ(entered->branch, branch);
  EXPECT_EQ(entered->members.size(), 4U);
  EXPECT_EQ(entered->members.front(), ctx.record.id);
}

TEST_F(MoshpitAverager, AloneARoundEndsAtOnce) {
  found();
  auto round = average(5);
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.group_size, 1U);
  EXPECT_EQ(round.get()->group.epoch, epoch_id{6});
  EXPECT_TRUE(searches.empty());
}

TEST_F(MoshpitAverager, ARoundIsInAGroupThatIsFoundForIt) {
  found_of_three();
  auto searched = search(5);
  ASSERT_EQ(searches.size(), 1U);
  EXPECT_EQ(searches[0].expected_peers, 3U) << "the group is complete once all are in it";
  EXPECT_TRUE(searches[0].one_round);
  EXPECT_EQ(elements_of(searches[0].codecs), values);
  EXPECT_FALSE(searched.answered());
  find_group();
  EXPECT_FALSE(searched.get()->ended);
  EXPECT_TRUE(given.empty()) << "training goes on while it searches";
  auto question = vector_at(5);
  question.weight = 0.5;
  auto round = ask_later<group_round>(actor, question);
  ASSERT_EQ(given.size(), 1U);
  EXPECT_EQ(given[0].epoch, searches[0].epoch);
  EXPECT_EQ(given[0].values, question.values);
  EXPECT_EQ(given[0].weight, 0.5);
  EXPECT_TRUE(given[0].deltas);
  EXPECT_FALSE(round.answered());
  end_step(mean_of(3));
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.values->front(), 2.0F);
  EXPECT_TRUE(round.get()->group.member);
  EXPECT_TRUE(round.get()->keeps_majority);
  EXPECT_EQ(round.get()->branch, branch);
  EXPECT_EQ(round.get()->group.epoch, epoch_id{6});
  see(std::vector<std::uint64_t>(20, 6));
  auto second = average(6);
  ASSERT_EQ(searches.size(), 2U);
  EXPECT_EQ(searches[1].expected_peers, 8U) << "of a full group";
  EXPECT_EQ(searches[1].epoch, searches[0].epoch) << "peers meet whatever their epochs";
  end_step(mean_of(8));
}

TEST_F(MoshpitAverager, NobodyFoundEndsTheEpochWithoutAChange) {
  found_of_three();
  auto searched = search(5);
  end_step(failed(ec::nobody_declared));
  ASSERT_TRUE(searched.get().ok());
  ASSERT_TRUE(searched.get()->ended);
  auto round = *searched.get()->ended;
  EXPECT_EQ(round.report.outcome, round_outcome::failed);
  EXPECT_EQ(round.report.why.code, ec::nobody_declared);
  EXPECT_TRUE(round.group.member) << "the group is not lost";
  EXPECT_EQ(round.group.epoch, epoch_id{6});
  EXPECT_EQ(ask<group_round>(actor, vector_at(6)).error().code, ec::not_ready);
  EXPECT_FALSE(average(6).answered()) << "the next round";
}

TEST_F(MoshpitAverager, AStepThatEndsBeforeTheValuesArriveIsTheRoundsEnd) {
  found_of_three();
  auto searched = search(5);
  find_group();
  pass(59s);
  EXPECT_EQ(quits, 0);
  pass(2s); // its deadline
  EXPECT_EQ(quits, 1) << "nobody waits for it any more";
  EXPECT_FALSE(searched.get()->ended) << "it was found";
  auto round = ask<group_round>(actor, vector_at(5));
  EXPECT_EQ(round->report.why.code, ec::timeout);
  EXPECT_EQ(round->group.epoch, epoch_id{6});
  EXPECT_TRUE(given.empty());
}

TEST_F(MoshpitAverager, TheEpochAfterARoundIsTheRuns) {
  found_of_three();
  auto round = average(5);
  see({8, 8});
  end_step(mean_of(2));
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->group.epoch, epoch_id{8});
}

TEST_F(MoshpitAverager, TheListenerLearnsOfMembersAndOfTheRunsEpoch) {
  found_of_three();
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].members.size(), 3U);
  see({5, 5});
  EXPECT_EQ(views.size(), 1U) << "nothing has changed";
  see({6, 5});
  EXPECT_EQ(views.size(), 1U) << "one peer alone is not the run";
  see({6, 6});
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[1].epoch, epoch_id{6});
}

TEST_F(MoshpitAverager, ASearchEndsWhenTheRunIsTooFarAhead) {
  found_of_three();
  auto searched = search(5);
  see({6, 6});
  EXPECT_EQ(cancelled, 0) << "within the tolerance";
  see({7, 7});
  ASSERT_EQ(cancelled, 1);
  end_step(failed(ec::cancelled));
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  auto round = *searched.get()->ended;
  EXPECT_EQ(round.report.why.code, ec::epoch_mismatch);
  EXPECT_THAT(round.report.why.detail, ::testing::HasSubstr("epoch 7"));
  EXPECT_EQ(round.group.epoch, epoch_id{7});
}

TEST_F(MoshpitAverager, ARoundThatHasBegunIsNotEnded) {
  found_of_three();
  auto round = average(5);
  see({7, 7});
  pass(10s);
  EXPECT_EQ(cancelled, 0);
  end_step(failed(ec::timeout)); // its all-reduce
  EXPECT_EQ(searches.size(), 2U);
  see({8, 8});
  EXPECT_EQ(cancelled, 1);
}

TEST_F(MoshpitAverager, ARoundThatFailsIsTriedAgainWithTheSameValues) {
  found_of_three();
  auto round = average(5);
  for (std::size_t failures = 1; failures <= averaging_config{}.retries_max; ++failures) {
    pass(1s);
    end_step(failed(ec::timeout));
    ASSERT_EQ(searches.size(), failures + 1);
    EXPECT_LT(searches.back().deadline, searches.front().deadline) << "of all attempts together";
    find_group();
    ASSERT_EQ(given.size(), failures + 1);
    EXPECT_EQ(given.back().values, given.front().values);
    EXPECT_TRUE(given.back().deltas);
  }
  EXPECT_FALSE(round.answered());
  end_step(failed(ec::timeout));
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.why.code, ec::timeout);
  EXPECT_EQ(round.get()->group.epoch, epoch_id{6});
}

TEST_F(MoshpitAverager, ValuesThatAreNotFiniteLeaveTheGroup) {
  found_of_three();
  auto searched = search(5);
  find_group();
  auto bad = vector_at(5);
  bad.values = std::make_shared<float_vector>(values, std::nanf(""));
  auto round = ask<group_round>(actor, bad);
  EXPECT_EQ(round->report.why.code, ec::non_finite);
  EXPECT_EQ(quits, 1);
  EXPECT_TRUE(given.empty());
}

TEST_F(MoshpitAverager, ASearchLastsTwoMatchmakingTimes) {
  found_of_three();
  auto searched = search(5);
  pass(5900ms);
  EXPECT_EQ(cancelled, 0);
  pass(200ms);
  ASSERT_EQ(cancelled, 1);
  end_step(failed(ec::cancelled));
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  EXPECT_EQ(searched.get()->ended->report.why.code, ec::too_few);
}

TEST_F(MoshpitAverager, CallsAreForTheEpochOfThePeer) {
  found_of_three();
  call(2, call_of(4));
  call(2, round_id{});
  call(9, call_of(5)); // no member
  EXPECT_TRUE(calls.empty());
  call(2, call_of(5));
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0], epoch_id{5});
  call(3, call_of(5));
  EXPECT_EQ(calls.size(), 1U) << "once per epoch";
}

TEST_F(MoshpitAverager, ACallForTheNextEpochWaitsForIt) {
  found_of_three();
  auto round = average(5);
  call(2, call_of(6));
  EXPECT_TRUE(calls.empty());
  end_step(mean_of(3));
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0], epoch_id{6});
}

TEST_F(MoshpitAverager, ACallForTheEpochThatTheRunReachesWaitsForIt) {
  found_of_three();
  call(2, call_of(6));
  EXPECT_TRUE(calls.empty());
  see({6, 6});
  EXPECT_EQ(calls, (std::vector{epoch_id{6}}));
}

TEST_F(MoshpitAverager, QuittingEndsTheRoundAndTheNextOneWaitsForItsEnd) {
  found_of_three();
  auto round = average(5);
  tell(actor, quit_group{});
  EXPECT_EQ(quits, 1);
  ASSERT_TRUE(round.get().ok());
  EXPECT_EQ(round.get()->report.why.code, ec::cancelled);
  EXPECT_FALSE(round.get()->group.member);
  EXPECT_EQ(search(5).get().error().code, ec::not_ready);
  ASSERT_TRUE(ask<group_view>(actor, enter_group{{record(2)}, branch, 30s}).ok());
  auto second = search(5);
  EXPECT_EQ(searches.size(), 1U) << "the round has not ended yet";
  end_step(failed(ec::cancelled));
  EXPECT_FALSE(second.answered());
  ASSERT_EQ(searches.size(), 2U);
  find_group();
  EXPECT_FALSE(second.get()->ended);
}

TEST_F(MoshpitAverager, QuittingEndsTheSearch) {
  found_of_three();
  auto searched = search(5);
  tell(actor, quit_group{});
  EXPECT_EQ(quits, 1);
  ASSERT_TRUE(searched.get().ok() && searched.get()->ended);
  EXPECT_EQ(searched.get()->ended->report.why.code, ec::cancelled);
  EXPECT_EQ(ask<group_round>(actor, vector_at(5)).error().code, ec::not_ready);
}

TEST_F(MoshpitAverager, RefusesWhatCannotBeAveraged) {
  EXPECT_EQ(search(5).get().error().code, ec::not_ready) << "in no group";
  found_of_three();
  EXPECT_EQ(ask<group_round>(actor, vector_at(5)).error().code, ec::not_ready)
    << "nobody was looked for";
  auto searched = search(5);
  EXPECT_EQ(search(5).get().error().code, ec::overloaded);
  EXPECT_EQ(ask<group_round>(actor, vector_at(5)).error().code, ec::not_ready);
  find_group();
  EXPECT_EQ(ask<group_round>(actor, vector_at(6)).error().code, ec::epoch_mismatch);
  average_in_group wrong{.values = std::make_shared<float_vector>(values + 1, 1.0F),
                         .epoch = epoch_id{5}};
  EXPECT_EQ(ask<group_round>(actor, wrong).error().code, ec::wrong_shape);
  wrong.values = nullptr;
  EXPECT_EQ(ask<group_round>(actor, wrong).error().code, ec::wrong_shape);
  wrong.values = std::make_shared<float_vector>(values, 1.0F);
  wrong.weight = -1;
  EXPECT_EQ(ask<group_round>(actor, wrong).error().code, ec::bad_weight);
  auto first = ask_later<group_round>(actor, vector_at(5));
  EXPECT_EQ(ask<group_round>(actor, vector_at(5)).error().code, ec::overloaded);
  EXPECT_EQ(given.size(), 1U);
  EXPECT_EQ(searches.size(), 1U);
}

TEST_F(MoshpitAverager, AVectorWhoseTensorsDoNotAddUpEndsIt) {
  auto tensors = std::make_shared<std::vector<tensor_info>>();
  tensors->push_back({"w", 3, tensor_role::unspecified});
  tell(actor, describe_vector{values, {tensors}});
  EXPECT_FALSE(alive(actor));
}

} // namespace
} // namespace waggle::testing
