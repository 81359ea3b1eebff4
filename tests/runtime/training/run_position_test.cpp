#include "runtime/training/run_position.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"

namespace waggle {
namespace {

using trouble = run_position::trouble;

struct RunPosition : ::testing::Test {
  static constexpr std::size_t values = 10;
  run_position at{5 * values * sizeof(float)}; // room for five updates
  digest branch = sha256("branch");
  history past{branch, {}, {}, 100};

  missed_update update(std::uint64_t epoch, digest of) const {
    return {epoch_id{epoch}, std::make_shared<float_vector>(values), {}, 0.1, {}, 7, of,
            at.past().branch};
  }
  missed_update update(std::uint64_t epoch) const { return update(epoch, branch); }
};

TEST_F(RunPosition, BeginsInStepWithWhatTheModelHolds) {
  at.begin(past, epoch_id{4});
  EXPECT_TRUE(at.in_step());
  EXPECT_EQ(at.past(), past);
  EXPECT_EQ(at.epoch(), epoch_id{4});
  EXPECT_EQ(at.held_epoch(), epoch_id{4});
}

TEST_F(RunPosition, InStepEveryEpochIsAppliedAtOnce) {
  at.begin(past, epoch_id{4});
  auto out = at.end_epoch(update(4));
  ASSERT_EQ(out.apply.size(), 1U);
  EXPECT_EQ(out.apply[0].after, at.past());
  EXPECT_EQ(at.past().work, 107U);
  EXPECT_EQ(at.epoch(), epoch_id{5});
  EXPECT_EQ(at.held_epoch(), epoch_id{5});
  EXPECT_FALSE(out.caught_up);
}

TEST_F(RunPosition, EntersInStepOnlyAtTheSameEpochOfTheSameBranch) {
  at.begin(past, epoch_id{4});
  at.enter(branch, 200, epoch_id{4});
  EXPECT_TRUE(at.in_step());
  EXPECT_EQ(at.past(), past) << "our own knowledge of the history is kept";
  at.enter(branch, 200, epoch_id{5});
  EXPECT_FALSE(at.in_step());
  EXPECT_EQ(at.held_epoch(), epoch_id{4});
  at.leave();
  at.enter(sha256("other"), 200, epoch_id{4});
  EXPECT_FALSE(at.in_step());
}

TEST_F(RunPosition, WithAToleranceAStateNearTheGroupsEpochIsInStep) {
  run_position near{1'000, 2};
  for (std::uint64_t epoch : {4U, 5U, 6U}) {
    near.begin(past, epoch_id{4});
    near.enter(branch, 200, epoch_id{epoch});
    EXPECT_TRUE(near.in_step()) << epoch;
    EXPECT_EQ(near.epoch(), epoch_id{epoch});
    EXPECT_EQ(near.held_epoch(), epoch_id{epoch}) << "the state is of the group's epoch now";
    EXPECT_EQ(near.past().work, epoch == 4 ? 100U : 200U);
  }
  near.begin(past, epoch_id{4});
  near.enter(branch, 200, epoch_id{7});
  EXPECT_FALSE(near.in_step());
  near.leave();
  near.enter(branch, 200, epoch_id{3});
  EXPECT_FALSE(near.in_step()) << "an epoch never decreases";
  near.leave();
  near.enter(sha256("other"), 200, epoch_id{4});
  EXPECT_FALSE(near.in_step()) << "of another history";
}

TEST_F(RunPosition, AnOutdatedStateEntersNoGroupUntilAnotherOneIsLoaded) {
  run_position many{1'000, 2, true};
  history past{branch, {}, {}, 100};
  many.begin(past, epoch_id{5});
  many.enter(branch, 100, epoch_id{5});
  ASSERT_TRUE(many.in_step());
  many.outdate();
  EXPECT_FALSE(many.in_step());
  many.enter(branch, 100, epoch_id{6});
  EXPECT_FALSE(many.in_step()) << "although its number is within the tolerance";
  many.leave();
  EXPECT_TRUE(many.in_step());
  EXPECT_EQ(many.epoch(), epoch_id{5});
  EXPECT_EQ(many.past(), past) << "it is not forgotten";
  many.enter(branch, 100, epoch_id{6});
  EXPECT_FALSE(many.in_step());
  EXPECT_TRUE(many.take_state(past, epoch_id{6}).caught_up);
  EXPECT_TRUE(many.in_step());
  many.enter(branch, 100, epoch_id{7});
  EXPECT_TRUE(many.in_step());
}

TEST_F(RunPosition, WithoutAGroupAnOutdatedStateIsAsGoodAsAny) {
  run_position many{1'000, 2, true};
  many.begin({branch, {}, {}, 100}, epoch_id{5});
  many.outdate();
  many.leave();
  many.found({branch, {}, {}, 100});
  many.enter(branch, 100, epoch_id{6});
  EXPECT_TRUE(many.in_step());
}

TEST_F(RunPosition, InManyGroupsADownloadedStateCountsIfItIsNearTheRunsEpoch) {
  for (std::uint64_t epoch : {4U, 5U, 6U, 7U, 8U, 9U}) {
    SCOPED_TRACE(epoch);
    run_position many{1'000, 2, true};
    many.begin({}, epoch_id{0});
    many.enter(branch, 200, epoch_id{5});
    EXPECT_FALSE(many.in_step());
    EXPECT_EQ(many.first_kept(), epoch_id{3}) << "the oldest state that would do";
    many.enter(branch, 200, epoch_id{7}); // meanwhile
    auto out = many.take_state(past, epoch_id{epoch});
    bool near = epoch >= 5;
    EXPECT_EQ(many.in_step(), near);
    EXPECT_EQ(out.caught_up, near);
    EXPECT_EQ(out.what, near ? trouble::none : trouble::gap);
    EXPECT_TRUE(out.apply.empty());
    EXPECT_EQ(many.epoch(), epoch_id{std::max<std::uint64_t>(epoch, 7)});
    EXPECT_EQ(many.held_epoch(), near ? many.epoch() : epoch_id{epoch});
  }
  run_position many{1'000, 2, true};
  many.begin({}, epoch_id{0});
  many.enter(branch, 200, epoch_id{1});
  EXPECT_EQ(many.first_kept(), epoch_id{0});
  EXPECT_EQ(many.take_state({sha256("other"), {}, {}, 9}, epoch_id{1}).what, trouble::gap);
  EXPECT_FALSE(many.in_step());
}

TEST_F(RunPosition, WithoutAStateOfAnyRunNothingIsInStep) {
  at.begin({}, epoch_id{0});
  at.enter({}, 0, epoch_id{0});
  EXPECT_FALSE(at.in_step());
}

TEST_F(RunPosition, WhatTheGroupDoesWhileTheStateIsDownloadedIsAppliedToIt) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{8});
  EXPECT_EQ(at.first_kept(), epoch_id{8});
  for (std::uint64_t epoch : {8U, 9U, 10U})
    EXPECT_TRUE(at.end_epoch(update(epoch)).apply.empty());
  EXPECT_EQ(at.epoch(), epoch_id{11});
  EXPECT_EQ(at.first_kept(), epoch_id{8});
  EXPECT_EQ(at.held_epoch(), epoch_id{0});
  auto out = at.take_state({branch, {}, {}, 107}, epoch_id{9});
  EXPECT_TRUE(out.caught_up);
  ASSERT_EQ(out.apply.size(), 2U);
  EXPECT_EQ(out.apply[0].update.epoch, epoch_id{9});
  EXPECT_EQ(out.apply[1].after.work, 121U);
  EXPECT_TRUE(at.in_step());
  EXPECT_EQ(at.held_epoch(), epoch_id{11});
  EXPECT_EQ(at.past().work, 121U);
}

TEST_F(RunPosition, ADonorThatIsAheadIsWaitedFor) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{8});
  auto out = at.take_state({branch, {}, {}, 107}, epoch_id{9});
  EXPECT_TRUE(out.apply.empty());
  EXPECT_TRUE(at.waits_for_group());
  EXPECT_FALSE(at.in_step());
  out = at.end_epoch(update(8));
  EXPECT_TRUE(out.caught_up);
  EXPECT_TRUE(out.apply.empty());
  EXPECT_FALSE(at.waits_for_group());
  EXPECT_EQ(at.held_epoch(), epoch_id{9});
}

TEST_F(RunPosition, LeavingGoesBackToWhatTheModelHolds) {
  at.begin(past, epoch_id{4});
  at.enter(branch, 200, epoch_id{8});
  at.end_epoch(update(8));
  at.leave();
  EXPECT_TRUE(at.in_step());
  EXPECT_EQ(at.past(), past);
  EXPECT_EQ(at.epoch(), epoch_id{4});
}

TEST_F(RunPosition, AStateThatCameTooLateForItsGroupIsHeldAllTheSame) {
  at.begin(past, epoch_id{4});
  at.enter(branch, 200, epoch_id{8});
  at.leave();
  EXPECT_TRUE(at.take_state({branch, {}, {}, 150}, epoch_id{8}).apply.empty());
  EXPECT_EQ(at.epoch(), epoch_id{8});
  at.enter(branch, 200, epoch_id{8});
  EXPECT_TRUE(at.in_step());
}

TEST_F(RunPosition, AStateThatIsTooOldLeavesAGap) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{8});
  at.end_epoch(update(8));
  EXPECT_EQ(at.take_state({branch, {}, {}, 50}, epoch_id{7}).what, trouble::gap);
  EXPECT_FALSE(at.in_step());
}

// The group forked after the donor's snapshot of a later epoch was taken on the old branch.
TEST_F(RunPosition, AStateOfTheBranchThatTheGroupHasLeftIsNoUse) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{8});
  at.take_state({branch, {}, {}, 107}, epoch_id{9}); // ahead
  EXPECT_EQ(at.end_epoch(update(8, sha256("fork"))).what, trouble::gap);
  EXPECT_FALSE(at.in_step());
  EXPECT_EQ(at.past().branch, sha256("fork"));
}

// The state was being loaded when we changed to another group.
TEST_F(RunPosition, AStateOfAnotherHistoryIsNotMadeOneOfOursByItsUpdates) {
  at.begin({}, epoch_id{0});
  at.enter(sha256("other"), 100, epoch_id{9});
  at.end_epoch(update(9, sha256("other")));
  at.end_epoch(update(10, sha256("other")));
  auto out = at.take_state({branch, {}, {}, 107}, epoch_id{10});
  EXPECT_EQ(out.what, trouble::gap);
  EXPECT_TRUE(out.apply.empty());
  EXPECT_FALSE(at.in_step());
}

// The donor is in the part that kept the name of the branch; its epoch 8 is not the one with which
// our part ended epoch 7.
TEST_F(RunPosition, AStateFromTheOtherSideOfAForkDoesNotLeadToOurs) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{7});
  at.end_epoch(update(7, sha256("fork")));
  at.end_epoch(update(8, sha256("fork")));
  EXPECT_EQ(at.take_state({branch, {}, {}, 107}, epoch_id{8}).what, trouble::gap);
}

TEST_F(RunPosition, AForkOnTheWayIsFollowed) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{8});
  at.end_epoch(update(8, sha256("fork")));
  at.end_epoch(update(9, sha256("fork")));
  EXPECT_TRUE(at.take_state({branch, {}, {}, 100}, epoch_id{8}).caught_up);
  EXPECT_EQ(at.past().branch, sha256("fork"));
  EXPECT_EQ(at.past().parent, branch);
  EXPECT_EQ(at.past().forked_at, epoch_id{8});
}

TEST_F(RunPosition, WithoutRoomForAnotherUpdateAllAreForgotten) {
  at.begin({}, epoch_id{0});
  at.enter(branch, 100, epoch_id{8});
  for (std::uint64_t epoch = 8; epoch < 13; ++epoch)
    EXPECT_EQ(at.end_epoch(update(epoch)).what, trouble::none);
  EXPECT_EQ(at.end_epoch(update(13)).what, trouble::no_room);
  EXPECT_EQ(at.first_kept(), epoch_id{14});
}

TEST_F(RunPosition, WhatIsDistrustedIsNoStateOfAnyBranch) {
  at.begin(past, epoch_id{4});
  at.distrust();
  EXPECT_TRUE(at.past().branch.is_zero());
  EXPECT_EQ(at.past().work, 0U);
  at.enter(branch, 200, epoch_id{4});
  EXPECT_FALSE(at.in_step());
}

TEST_F(RunPosition, WorkThatOthersMadeUpDoesNotWrapAround) {
  at.begin({branch, {}, {}, ~std::uint64_t{0} - 3}, epoch_id{4});
  at.end_epoch(update(4));
  EXPECT_EQ(at.past().work, ~std::uint64_t{0});
}

} // namespace
} // namespace waggle
