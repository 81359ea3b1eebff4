#include "runtime/training/flight.hpp"

#include <gtest/gtest.h>

namespace waggle {
namespace {

using phase = flight::phase;

contribution copied(std::uint64_t samples, std::uint64_t epoch = 3) {
  return {
    .epoch = epoch_id{epoch}, .own = std::make_shared<float_vector>(2, 1.0F), .samples = samples};
}

TEST(Flight, GoesFromItsCopyToTheMerge) {
  flight it;
  EXPECT_EQ(it.at(), phase::idle);
  EXPECT_EQ(it.given(), nullptr);
  it.hold(copied(8), 1);
  EXPECT_EQ(it.at(), phase::held);
  EXPECT_FALSE(it.round_runs());
  EXPECT_TRUE(it.awaits(it.send()));
  EXPECT_TRUE(it.round_runs());
  EXPECT_EQ(it.in_flight(), 8U);
  it.end({{}, true, {}}, false);
  EXPECT_EQ(it.at(), phase::ended);
  EXPECT_EQ(it.given(), nullptr) << "its vector is not kept until the merge";
  EXPECT_TRUE(it.take_result().counted);
  EXPECT_EQ(it.settle(), 8U);
  EXPECT_EQ(it.at(), phase::idle);
}

TEST(Flight, IsHeldForAnotherRoundAfterOneThatFailed) {
  flight it;
  it.hold(copied(8), 1);
  auto first = it.send();
  it.interrupt();
  EXPECT_EQ(it.at(), phase::held);
  EXPECT_FALSE(it.awaits(first)) << "a late answer to the first round";
  EXPECT_TRUE(it.awaits(it.send()));
  EXPECT_EQ(it.given()->samples, 8U);
}

TEST(Flight, IsCopiedWhenItsMembersAreFound) {
  flight it;
  contribution of_model{.epoch = epoch_id{3}};
  it.stepped(4);
  auto search = it.search(of_model, 1);
  EXPECT_EQ(it.at(), phase::searching);
  EXPECT_TRUE(it.round_runs());
  it.stepped(4); // training goes on meanwhile
  auto round = it.found(copied(0).own);
  EXPECT_FALSE(it.awaits(search));
  EXPECT_TRUE(it.awaits(round));
  EXPECT_EQ(it.at(), phase::averaging);
  EXPECT_EQ(it.given()->steps, 2U) << "the copy has the step made meanwhile";
  it.count_steps();
  EXPECT_EQ(it.uncounted_steps(), 0U);
}

TEST(Flight, GivesNothingToMembersThatWereFoundWhileItsModelCannotBeRead) {
  flight it;
  auto of_model = copied(0);
  of_model.own = nullptr;
  of_model.from_state = true;
  of_model.weight = 1;
  it.stepped(4);
  (void)it.search(of_model, 1);
  (void)it.found(copied(0).own, false);
  EXPECT_FALSE(it.given()->from_state);
  EXPECT_EQ(it.given()->weight, 0);
  it.count_steps();
  EXPECT_EQ(it.uncounted_steps(), 1U) << "the next round counts them";
}

TEST(Flight, DoesNotCountStepsOfAModelThatItDoesNotContain) {
  flight it;
  it.stepped(4);
  it.hold(copied(0), 1); // zeros, of a peer that has yet to download its group's state
  (void)it.send();
  it.count_steps();
  EXPECT_EQ(it.uncounted_steps(), 1U);
}

TEST(Flight, LosesTheSamplesOfAContributionThatIsGivenUp) {
  flight it;
  it.hold(copied(8), 1);
  auto number = it.send();
  EXPECT_EQ(it.settle(), 8U);
  EXPECT_FALSE(it.awaits(number));
  EXPECT_EQ(it.at(), phase::idle);
  EXPECT_EQ(it.in_flight(), 0U);
}

TEST(Flight, OfThisPeerAloneCanBeHeldAgainInsteadOfMerged) {
  flight it;
  it.hold(copied(8), 1);
  (void)it.send();
  it.end({{}, true, {}}, true);
  ASSERT_NE(it.given(), nullptr);
  it.hold_again();
  EXPECT_EQ(it.at(), phase::held);
  EXPECT_EQ(it.in_flight(), 8U);
  EXPECT_EQ(it.settle(), 8U) << "it could not be saved";
}

TEST(Flight, CountsPassesFromOneBoundaryToTheNext) {
  flight it;
  it.pass_ended();
  it.stepped(4);
  it.call();
  EXPECT_TRUE(it.called());
  it.hold(copied(0), 1);
  it.begin_counting();
  EXPECT_FALSE(it.called());
  it.pass_ended();
  it.stepped(2);
  EXPECT_EQ(it.counts().passes, 1U);
  EXPECT_EQ(it.counts().samples, 2U);
  it.count_again(); // the round will begin anew
  EXPECT_EQ(it.counts().passes, 2U);
  EXPECT_EQ(it.counts().samples, 6U);
}

TEST(Flight, CountsOnFromTheProcessBeforeItOnce) {
  flight it;
  own_progress kept{.local_samples = 40, .local_passes = 10, .uncounted_steps = 3};
  it.resume(kept);
  EXPECT_EQ(it.uncounted_steps(), 3U);
  it.begin_counting();
  EXPECT_EQ(it.counts().passes, 0U);
  it.count_on();
  EXPECT_EQ(it.counts().passes, 10U);
  EXPECT_EQ(it.counts().samples, 40U);
  it.begin_counting();
  it.count_on();
  EXPECT_EQ(it.counts().passes, 0U);
}

TEST(Flight, AnEmptyPassIsNoStep) {
  flight it;
  it.stepped(0);
  EXPECT_EQ(it.uncounted_steps(), 0U);
}

TEST(Flight, RefusesOtherTransitions) {
  flight it;
  EXPECT_DEATH(it.send(), "idle");
  EXPECT_DEATH(it.found(nullptr), "idle");
  EXPECT_DEATH(it.settle(), "idle");
  EXPECT_DEATH(it.hold({}, 1), "nothing is copied");
  it.hold(copied(8), 1);
  EXPECT_DEATH(it.hold(copied(8), 1), "one flight at a time: held");
  EXPECT_DEATH(it.search({}, 1), "one flight at a time: held");
  EXPECT_DEATH(it.end({}, false), "held");
  (void)it.send();
  EXPECT_DEATH(it.send(), "averaging");
  EXPECT_DEATH(it.hold_again(), "averaging");
  it.end({}, false);
  EXPECT_DEATH(it.interrupt(), "ended");
  EXPECT_DEATH(it.hold_again(), "ended");
  (void)it.take_result();
  EXPECT_DEATH((void)it.take_result(), "ended");
}

TEST(Flight, IsSavedForTheNextProcess) {
  flight it;
  it.stepped(8);
  it.pass_ended();
  auto given = copied(4);
  given.position = "here";
  it.hold(given, 1);
  own_progress kept;
  it.save(kept, false);
  EXPECT_EQ(kept.local_samples, 0U) << "its steps are in no optimizer's state";
  it.save(kept, true);
  EXPECT_EQ(kept.local_samples, 8U);
  EXPECT_EQ(kept.local_passes, 1U);
  EXPECT_EQ(kept.uncounted_steps, 1U);
  auto again = resumed(kept, epoch_id{3});
  EXPECT_EQ(again.own, given.own);
  EXPECT_EQ(again.samples, 4U);
  EXPECT_EQ(again.weight, 4);
  EXPECT_EQ(again.position, "here");
  EXPECT_TRUE(again.resumed && again.from_state);
}

} // namespace
} // namespace waggle
