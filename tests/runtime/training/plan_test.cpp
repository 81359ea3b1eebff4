#include "runtime/training/plan.hpp"

#include <gtest/gtest.h>

#include "tests/support/strategies.hpp"

namespace waggle {
namespace {

using testing::collaborative, testing::delayed_gradients, testing::local_updates;

constexpr next_actions wait{};
constexpr next_actions pass{.pass = true};
constexpr next_actions begin{.begin = true};
constexpr next_actions begin_and_pass{.begin = true, .pass = true};
constexpr next_actions merge{.merge = true};
constexpr next_actions merge_and_pass{.merge = true, .pass = true};
constexpr next_actions merge_begin_and_pass{.merge = true, .begin = true, .pass = true};

constexpr std::uint64_t target = 64;

/// Two members at epoch 3 without any flight.
situation quiet() {
  return {.own_steps = 10,
          .own_samples = 8,
          .swarm_samples = 24,
          .in_group = true,
          .members = 2,
          .epochs_done = 3};
}

void put_under_way(situation& now, bool over = false) {
  now.round = flying_round{now.own_steps, over};
  now.last_epoch = now.epochs_done;
}

class Collaborative : public ::testing::Test {
protected:
  const strategy table = collaborative(target);
  situation now = quiet();
  next_actions made() const { return plan_next(table.averages, now); }
};

TEST_F(Collaborative, HoldsUntilTheSwarmHasItsSamples) {
  EXPECT_EQ(made(), pass);
  now.swarm_samples = target - 1;
  EXPECT_EQ(made(), pass);
}

TEST_F(Collaborative, BeginsAtTheTargetAndBlocks) {
  now.swarm_samples = target;
  EXPECT_EQ(made(), begin);
}

TEST_F(Collaborative, WaitsForThePassThatAddsToTheOnlyGradient) {
  now.pass_running = now.gradient_in_use = true;
  now.swarm_samples = target;
  EXPECT_EQ(made(), wait);
  now.round_called = true;
  EXPECT_EQ(made(), wait);
  now.gradient_in_use = false; // a pass that adds to another one
  EXPECT_EQ(made(), begin);
}

TEST_F(Collaborative, BeginsAtOnceWhenAnotherMemberHasCalled) {
  now.round_called = true;
  EXPECT_EQ(made(), begin);
  now.own_samples = 0;
  EXPECT_EQ(made(), begin);
}

// Its first try was with another group, of another history, at an epoch with the same number.
TEST_F(Collaborative, AnswersACallAlsoForAnEpochThatItHasTried) {
  now.own_samples = 0;
  now.last_epoch = now.epochs_done;
  EXPECT_EQ(made(), pass);
  now.round_called = true;
  EXPECT_EQ(made(), begin);
}

TEST_F(Collaborative, NeverWaitsForAPass) {
  now.pass_running = true;
  EXPECT_EQ(made(), wait); // no second pass at the same time
  now.round_called = true;
  EXPECT_EQ(made(), begin);
}

TEST_F(Collaborative, LetsNoOtherPassBeginWhileItsRoundIsUnderWay) {
  now.swarm_samples = target;
  put_under_way(now);
  EXPECT_EQ(made(), wait);
}

TEST_F(Collaborative, NeedsSamplesForASecondTryInAnEpoch) {
  now.swarm_samples = target;
  now.own_samples = 0;
  now.last_epoch = now.epochs_done;
  EXPECT_EQ(made(), pass);
  now.own_samples = 8;
  EXPECT_EQ(made(), begin);
  now.own_samples = 0;
  now.epochs_done = 4;
  EXPECT_EQ(made(), begin);
}

TEST_F(Collaborative, AloneItNeverBeginsWithoutASample) {
  now.swarm_samples = target;
  now.members = 1;
  EXPECT_EQ(made(), begin);
  now.own_samples = 0;
  EXPECT_EQ(made(), pass);
}

// Of a pass over the data, the last epoch mostly has fewer samples than the target.
TEST_F(Collaborative, BeginsWithoutTheTargetOnceNobodyCanAddASample) {
  now.exhausted = true;
  EXPECT_EQ(made(), begin);
  now.own_samples = now.swarm_samples = 0; // all were drawn by others, who are gone
  now.members = 1;
  now.last_epoch = now.epochs_done;
  EXPECT_EQ(made(), begin) << "again, because nothing else ends the epoch";
  now.gradient_in_use = true;
  EXPECT_EQ(made(), pass);
  now.gradient_in_use = false;
  now.in_group = false;
  EXPECT_EQ(made(), pass);
}

TEST_F(Collaborative, BeginsNothingOutsideOfAGroup) {
  now.swarm_samples = target;
  now.round_called = true;
  now.in_group = false;
  EXPECT_EQ(made(), pass);
}

TEST_F(Collaborative, FinishesAfterItsLastEpoch) {
  now.max_epochs = 4;
  now.swarm_samples = target;
  EXPECT_EQ(made(), begin);
  now.epochs_done = 4;
  EXPECT_EQ(made(), wait); // resumed from the last checkpoint
}

TEST(DelayedGradients, TrainsOnWhileTheRoundRunsAndMergesAtTheNextBoundary) {
  auto table = delayed_gradients(target);
  auto now = quiet();
  now.swarm_samples = target;
  EXPECT_EQ(plan_next(table.averages, now), begin_and_pass);
  put_under_way(now);
  now.epochs_done = 4;
  now.swarm_samples = 8;
  EXPECT_EQ(plan_next(table.averages, now), pass);
  now.round->over = true;
  EXPECT_EQ(plan_next(table.averages, now), pass);
  now.swarm_samples = target;
  EXPECT_EQ(plan_next(table.averages, now), merge_begin_and_pass);
}

TEST(DelayedGradients, IsNeverMoreThanOneRoundLate) {
  auto table = delayed_gradients(target);
  auto now = quiet();
  put_under_way(now);
  now.epochs_done = 4;
  now.swarm_samples = target;
  EXPECT_EQ(plan_next(table.averages, now), wait);
}

TEST(DelayedGradients, SettlesItsLastRoundBeforeItFinishes) { // INV-2
  auto table = delayed_gradients(target);
  auto now = quiet();
  now.max_epochs = 4;
  now.swarm_samples = target;
  EXPECT_EQ(plan_next(table.averages, now), begin);
  put_under_way(now);
  now.epochs_done = 4;
  now.swarm_samples = 0;
  EXPECT_EQ(plan_next(table.averages, now), wait);
  now.round->over = true;
  EXPECT_EQ(plan_next(table.averages, now), merge);
}

class DataParallel : public ::testing::Test {
protected:
  const strategy table = find_strategy("data-parallel")->make({});
  situation now = quiet();
  next_actions made() const { return plan_next(table.averages, now); }
};

TEST_F(DataParallel, BeginsOnceEveryMemberHasMadeAPass) {
  EXPECT_EQ(made(), pass) << "its own is missing";
  now.boundary_steps = 1;
  now.members_missing = 1;
  EXPECT_EQ(made(), pass);
  now.members_missing = 0;
  EXPECT_EQ(made(), begin);
}

TEST_F(DataParallel, JoinsARoundThatDoesNotWaitForIt) {
  now.own_samples = 0;
  now.members_missing = 1;
  now.round_called = true;
  EXPECT_EQ(made(), begin);
}

class OverlappedDiloco : public ::testing::Test {
protected:
  const strategy table = find_strategy("diloco")->make({.numbers = {10, 0.7, 0.9, 1, 4}});
  situation now = quiet();
  next_actions at(std::uint64_t own_steps, std::uint64_t boundary_steps) {
    now.own_steps = own_steps;
    now.boundary_steps = boundary_steps;
    return plan_next(table.averages, now);
  }
};

TEST_F(OverlappedDiloco, TrainsOnDuringARoundAndMergesAfterTheOverlap) {
  EXPECT_EQ(at(9, 9), pass);
  EXPECT_EQ(at(10, 10), begin_and_pass);
  put_under_way(now, true);
  EXPECT_EQ(at(13, 3), pass);
  EXPECT_EQ(at(14, 4), merge_and_pass);
  put_under_way(now);
  now.own_steps = 14;
  EXPECT_EQ(at(18, 8), wait) << "the result is late";
}

TEST_F(OverlappedDiloco, OfAPeerThatLeavesBeginsNoPassAndMergesAtOnce) {
  now.leaving = true;
  EXPECT_EQ(at(9, 9), wait);
  EXPECT_EQ(at(10, 10), begin);
  put_under_way(now);
  EXPECT_EQ(at(11, 1), wait);
  put_under_way(now, true);
  EXPECT_EQ(at(11, 1), merge);
}

TEST_F(OverlappedDiloco, OfAPeerWithoutSamplesMergesAtOnce) {
  put_under_way(now, true);
  EXPECT_EQ(at(11, 1), pass);
  now.idle = true;
  EXPECT_EQ(at(11, 1), merge_and_pass);
}

TEST_F(OverlappedDiloco, OfAPeerThatLeavesBeforeTheNextRoundIsDueNow) {
  now.leaving = now.hurried = true;
  EXPECT_EQ(at(3, 3), begin);
  now.in_group = false;
  EXPECT_EQ(at(3, 3), wait);
}

TEST_F(OverlappedDiloco, MergesEarlierForTheNextRoundOfAFasterPeer) {
  put_under_way(now, true);
  now.round_called = true;
  EXPECT_EQ(at(12, 2), merge_begin_and_pass);
}

class ParametersAtBoundaries : public ::testing::Test {
protected:
  strategy table = local_updates({lane_clock::unit::first_peer, 4, 500});
  situation now = quiet();
  next_actions at(std::uint64_t steps, std::uint64_t time) {
    now.boundary_steps = steps;
    now.time = time;
    return plan_next(table.averages, now);
  }
};

TEST_F(ParametersAtBoundaries, BeginOnceTheStepsAreMadeAndTheGridIsReached) {
  now.boundary_time = 1'700;
  EXPECT_EQ(at(3, 2'100), pass);
  EXPECT_EQ(at(4, 1'999), pass);
  EXPECT_EQ(at(4, 2'000), begin_and_pass);
}

TEST_F(ParametersAtBoundaries, BeginAtOnceWhenAnotherPeerCalls) {
  now.round_called = true;
  EXPECT_EQ(at(0, 1), begin_and_pass);
}

TEST_F(ParametersAtBoundaries, EndEpochsAlsoAlone) {
  now.members = 1;
  EXPECT_EQ(at(4, 500), begin_and_pass);
}

TEST_F(ParametersAtBoundaries, MergeWhenTheMeanArrivesAndAwaitTheLastOne) {
  put_under_way(now);
  EXPECT_EQ(at(1, 1), pass);
  EXPECT_EQ(at(4, 500), pass) << "one flight at a time";
  put_under_way(now, true);
  EXPECT_EQ(at(1, 1), merge_and_pass);
  EXPECT_EQ(at(4, 500), merge_begin_and_pass) << "before the next snapshot";
  put_under_way(now);
  now.max_epochs = now.epochs_done;
  EXPECT_EQ(at(1, 1), wait);
}

TEST_F(ParametersAtBoundaries, BlockIfTheyAreNotDelayed) {
  table = local_updates({lane_clock::unit::swarm_samples, target}, {}, false);
  now.swarm_samples = target;
  EXPECT_EQ(at(1, 1), begin);
}

TEST_F(ParametersAtBoundaries, BlockOnlyOnceTheMembersOfTheRoundAreFound) {
  table = local_updates({lane_clock::unit::swarm_samples, target}, {}, false);
  put_under_way(now);
  now.searching = true;
  EXPECT_EQ(at(1, 1), pass);
  now.searching = false;
  EXPECT_EQ(at(1, 1), wait);
  now.round->over = true; // nobody was found
  EXPECT_EQ(at(1, 1), merge_and_pass);
}

TEST_F(ParametersAtBoundaries, AwaitTheMembersOfTheLastRound) {
  table = local_updates({lane_clock::unit::swarm_samples, target}, {}, false);
  put_under_way(now);
  now.searching = true;
  now.max_epochs = now.epochs_done;
  EXPECT_EQ(at(1, 1), wait);
}

} // namespace
} // namespace waggle
