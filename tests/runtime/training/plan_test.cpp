#include "runtime/training/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

using kind = action::kind;
using testing::ElementsAre;
using testing::IsEmpty;

action what(kind k) {
  return {k, verdict::skip};
}
action give_up(verdict why) {
  return {kind::give_up, why};
}

const auto hold = what(kind::hold);
const auto begin = what(kind::begin);
const auto await = what(kind::await);
const auto merge = what(kind::merge);
const auto end_epoch = what(kind::end_epoch);
const auto finish = what(kind::finish);
const auto inner_step = what(kind::inner_step);

constexpr std::uint64_t target = 64;

/// Two members at epoch 3 without any flight.
situation quiet() {
  situation now;
  now.own_steps = 10;
  now.own_samples = 8;
  now.swarm_samples = 24;
  now.in_group = true;
  now.members = 2;
  now.epochs_done = 3;
  return now;
}

void put_under_way(situation& now, std::optional<verdict> outcome) {
  now.round = flying_round{now.own_steps, outcome};
  now.last_epoch = now.epochs_done;
}

class Collaborative : public testing::Test {
protected:
  const strategy table = collaborative(target);
  situation now = quiet();
  plan made() const { return on_offer(table, now); }
};

TEST_F(Collaborative, HoldsUntilTheSwarmHasItsSamples) {
  EXPECT_THAT(made(), ElementsAre(hold));
  now.swarm_samples = target - 1;
  EXPECT_THAT(made(), ElementsAre(hold));
}

TEST_F(Collaborative, BeginsAtTheTargetAndBlocks) {
  now.swarm_samples = target;
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

TEST_F(Collaborative, WaitsForThePassThatAddsToTheOnlyGradient) {
  now.pass_running = now.gradient_in_use = true;
  now.swarm_samples = target;
  EXPECT_THAT(made(), IsEmpty());
  now.round_called = true;
  EXPECT_THAT(made(), IsEmpty());
  now.gradient_in_use = false; // a pass that adds to another one
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

TEST_F(Collaborative, BeginsAtOnceWhenAnotherMemberHasCalled) {
  now.round_called = true;
  EXPECT_THAT(made(), ElementsAre(begin, await));
  now.own_samples = 0;
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

// Its first try was with another group, of another history, at an epoch with the same number.
TEST_F(Collaborative, AnswersACallAlsoForAnEpochThatItHasTried) {
  now.own_samples = 0;
  now.last_epoch = now.epochs_done;
  EXPECT_THAT(made(), ElementsAre(hold));
  now.round_called = true;
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

TEST_F(Collaborative, NeverWaitsForAPass) {
  now.pass_running = true;
  EXPECT_THAT(made(), IsEmpty()); // no second pass at the same time
  now.round_called = true;
  EXPECT_THAT(made(), ElementsAre(begin, await));
  put_under_way(now, verdict::merge);
  EXPECT_THAT(made(), ElementsAre(merge, end_epoch));
}

TEST_F(Collaborative, LetsNoOtherPassBeginWhileItsRoundIsUnderWay) {
  now.swarm_samples = target;
  put_under_way(now, std::nullopt);
  EXPECT_THAT(made(), ElementsAre(await));
}

TEST_F(Collaborative, EndsTheEpochWithTheMean) {
  now.swarm_samples = target;
  put_under_way(now, verdict::merge);
  EXPECT_THAT(made(),
              ElementsAre(merge, end_epoch, hold)); // no round for the samples of this epoch
}

TEST_F(Collaborative, EndsTheEpochWithItsOwnGradientIfTheRoundFailed) {
  now.swarm_samples = target;
  put_under_way(now, verdict::own_gradient);
  EXPECT_THAT(made(), ElementsAre(give_up(verdict::own_gradient), end_epoch, hold));
}

TEST_F(Collaborative, DoesNothingElseOnceItWasLeftOut) {
  now.swarm_samples = target;
  put_under_way(now, verdict::left_out);
  EXPECT_THAT(made(), ElementsAre(give_up(verdict::left_out)));
}

TEST_F(Collaborative, NeedsSamplesForASecondTryInAnEpoch) {
  now.swarm_samples = target;
  now.own_samples = 0;
  put_under_way(now, verdict::skip);
  EXPECT_THAT(made(), ElementsAre(give_up(verdict::skip), hold));
  now.round.reset();
  EXPECT_THAT(made(), ElementsAre(hold));
  now.own_samples = 8;
  EXPECT_THAT(made(), ElementsAre(begin, await));
  now.own_samples = 0;
  now.epochs_done = 4;
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

TEST_F(Collaborative, AloneItNeverBeginsWithoutASample) {
  now.swarm_samples = target;
  now.members = 1;
  EXPECT_THAT(made(), ElementsAre(begin, await));
  now.own_samples = 0;
  EXPECT_THAT(made(), ElementsAre(hold));
}

// Of a pass over the data, the last epoch mostly has fewer samples than the target.
TEST_F(Collaborative, BeginsWithoutTheTargetOnceNobodyCanAddASample) {
  now.exhausted = true;
  EXPECT_THAT(made(), ElementsAre(begin, await));
  now.own_samples = now.swarm_samples = 0; // all were drawn by others, who are gone
  now.members = 1;
  now.last_epoch = now.epochs_done;
  EXPECT_THAT(made(), ElementsAre(begin, await)) << "again, because nothing else ends the epoch";
  now.gradient_in_use = true;
  EXPECT_THAT(made(), ElementsAre(hold));
  now.gradient_in_use = false;
  now.in_group = false;
  EXPECT_THAT(made(), ElementsAre(hold));
}

TEST_F(Collaborative, BeginsNothingOutsideOfAGroup) {
  now.swarm_samples = target;
  now.round_called = true;
  now.in_group = false;
  EXPECT_THAT(made(), ElementsAre(hold));
}

TEST_F(Collaborative, FinishesAfterItsLastEpoch) {
  now.max_epochs = 4;
  now.swarm_samples = target;
  EXPECT_THAT(made(), ElementsAre(begin, await));
  put_under_way(now, verdict::merge);
  EXPECT_THAT(made(), ElementsAre(merge, end_epoch, finish));
  now.epochs_done = 4;
  now.round.reset();
  EXPECT_THAT(made(), ElementsAre(finish)); // resumed from the last checkpoint
}

TEST(DelayedGradients, TrainsOnWhileTheRoundRunsAndMergesAtTheNextBoundary) {
  auto table = delayed_gradients(target);
  auto now = quiet();
  now.swarm_samples = target;
  EXPECT_THAT(on_offer(table, now), ElementsAre(begin, end_epoch, hold));
  put_under_way(now, std::nullopt);
  now.epochs_done = 4;
  now.swarm_samples = 8;
  EXPECT_THAT(on_offer(table, now), ElementsAre(hold));
  now.round->outcome = verdict::merge;
  EXPECT_THAT(on_offer(table, now), ElementsAre(hold));
  now.swarm_samples = target;
  EXPECT_THAT(on_offer(table, now), ElementsAre(merge, begin, end_epoch, hold));
}

TEST(DelayedGradients, IsNeverMoreThanOneRoundLate) {
  auto table = delayed_gradients(target);
  auto now = quiet();
  put_under_way(now, std::nullopt);
  now.epochs_done = 4;
  now.swarm_samples = target;
  EXPECT_THAT(on_offer(table, now), ElementsAre(await));
}

TEST(DelayedGradients, FallsBackOnTheGradientOfTheFailedRoundsEpoch) { // INV-6
  auto table = delayed_gradients(target);
  auto now = quiet();
  put_under_way(now, verdict::own_gradient);
  now.epochs_done = 4;
  now.swarm_samples = target;
  EXPECT_THAT(on_offer(table, now),
              ElementsAre(give_up(verdict::own_gradient), begin, end_epoch, hold));
}

TEST(DelayedGradients, ActsAtOnceWhenItWasLeftOut) {
  auto table = delayed_gradients(target);
  auto now = quiet();
  put_under_way(now, verdict::left_out);
  EXPECT_THAT(on_offer(table, now), ElementsAre(give_up(verdict::left_out)));
}

TEST(DelayedGradients, SettlesItsLastRoundBeforeItFinishes) { // INV-2
  auto table = delayed_gradients(target);
  auto now = quiet();
  now.max_epochs = 4;
  now.swarm_samples = target;
  EXPECT_THAT(on_offer(table, now), ElementsAre(begin, end_epoch, await));
  put_under_way(now, std::nullopt);
  now.epochs_done = 4;
  now.swarm_samples = 0;
  EXPECT_THAT(on_offer(table, now), ElementsAre(await));
  now.round->outcome = verdict::merge;
  EXPECT_THAT(on_offer(table, now), ElementsAre(merge, finish));
}

class DataParallel : public testing::Test {
protected:
  const strategy table = find_strategy("data-parallel")->make({});
  situation now = quiet();
  plan made() const { return on_offer(table, now); }
};

TEST_F(DataParallel, BeginsOnceEveryMemberHasMadeAPass) {
  EXPECT_THAT(made(), ElementsAre(hold)) << "its own is missing";
  now.boundary_steps = 1;
  now.members_missing = 1;
  EXPECT_THAT(made(), ElementsAre(hold));
  now.members_missing = 0;
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

TEST_F(DataParallel, JoinsARoundThatDoesNotWaitForIt) {
  now.own_samples = 0;
  now.members_missing = 1;
  now.round_called = true;
  EXPECT_THAT(made(), ElementsAre(begin, await));
}

class OverlappedDiloco : public testing::Test {
protected:
  const strategy table = find_strategy("diloco")->make({.numbers = {10, 0.7, 0.9, 1, 4}});
  situation now = quiet();
  plan at(std::uint64_t own_steps, std::uint64_t boundary_steps) {
    now.own_steps = own_steps;
    now.boundary_steps = boundary_steps;
    return on_offer(table, now);
  }
};

TEST_F(OverlappedDiloco, TrainsOnDuringARoundAndMergesAfterTheOverlap) {
  EXPECT_THAT(at(9, 9), ElementsAre(hold));
  EXPECT_THAT(at(10, 10), ElementsAre(begin, end_epoch, hold));
  put_under_way(now, verdict::merge);
  EXPECT_THAT(at(13, 3), ElementsAre(hold));
  EXPECT_THAT(at(14, 4), ElementsAre(merge, hold));
  put_under_way(now, std::nullopt);
  now.own_steps = 14;
  EXPECT_THAT(at(18, 8), ElementsAre(await)) << "the result is late";
}

TEST_F(OverlappedDiloco, MergesEarlierForTheNextRoundOfAFasterPeer) {
  put_under_way(now, verdict::merge);
  now.round_called = true;
  EXPECT_THAT(at(12, 2), ElementsAre(merge, begin, end_epoch, hold));
}

class ParametersAtBoundaries : public testing::Test {
protected:
  strategy table = local_updates({lane_clock::unit::first_peer, 4, 500});
  situation now = quiet();
  plan at(std::uint64_t steps, std::uint64_t time) {
    now.boundary_steps = steps;
    now.time = time;
    return on_offer(table, now);
  }
};

TEST_F(ParametersAtBoundaries, BeginOnceTheStepsAreMadeAndTheGridIsReached) {
  now.boundary_time = 1'700;
  EXPECT_THAT(at(3, 2'100), ElementsAre(hold));
  EXPECT_THAT(at(4, 1'999), ElementsAre(hold));
  EXPECT_THAT(at(4, 2'000), ElementsAre(begin, end_epoch, hold));
}

TEST_F(ParametersAtBoundaries, StepLocallyWithEachPass) {
  now.offered = true;
  EXPECT_THAT(at(3, 2'100), ElementsAre(inner_step, hold));
}

TEST_F(ParametersAtBoundaries, BeginAtOnceWhenAnotherPeerCalls) {
  now.round_called = true;
  EXPECT_THAT(at(0, 1), ElementsAre(begin, end_epoch, hold));
}

TEST_F(ParametersAtBoundaries, EndEpochsAlsoAlone) {
  now.members = 1;
  EXPECT_THAT(at(4, 500), ElementsAre(begin, end_epoch, hold));
}

TEST_F(ParametersAtBoundaries, MergeWhenTheMeanArrivesAndAwaitTheLastOne) {
  put_under_way(now, std::nullopt);
  EXPECT_THAT(at(1, 1), ElementsAre(hold));
  EXPECT_THAT(at(4, 500), ElementsAre(hold)) << "one flight at a time";
  put_under_way(now, verdict::merge);
  EXPECT_THAT(at(1, 1), ElementsAre(merge, hold));
  EXPECT_THAT(at(4, 500), ElementsAre(merge, begin, end_epoch, hold)) << "before the next snapshot";
  put_under_way(now, std::nullopt);
  now.max_epochs = now.epochs_done;
  EXPECT_THAT(at(1, 1), ElementsAre(await));
}

TEST_F(ParametersAtBoundaries, BlockIfTheyAreNotDelayed) {
  table = local_updates({lane_clock::unit::swarm_samples, target}, {}, false);
  now.swarm_samples = target;
  EXPECT_THAT(at(1, 1), ElementsAre(begin, await));
}

TEST_F(ParametersAtBoundaries, BlockOnlyOnceTheMembersOfTheRoundAreFound) {
  table = local_updates({lane_clock::unit::swarm_samples, target}, {}, false);
  put_under_way(now, std::nullopt);
  now.searching = true;
  EXPECT_THAT(at(1, 1), ElementsAre(hold));
  now.searching = false;
  EXPECT_THAT(at(1, 1), ElementsAre(await));
  put_under_way(now, verdict::skip); // nobody was found
  EXPECT_THAT(at(1, 1), ElementsAre(give_up(verdict::skip), hold));
}

TEST_F(ParametersAtBoundaries, AwaitTheMembersOfTheLastRound) {
  table = local_updates({lane_clock::unit::swarm_samples, target}, {}, false);
  put_under_way(now, std::nullopt);
  now.searching = true;
  now.max_epochs = now.epochs_done;
  EXPECT_THAT(at(1, 1), ElementsAre(await));
}

} // namespace
} // namespace waggle
