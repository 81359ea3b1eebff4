// Steps that have their group and wait for their trigger.

#include "tests/actors/averager/averager_fixture.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;

class WaitingSteps : public Averager {
protected:
  using pending_call = pending<step_called>;

  /// So many peers whose steps all wait for their triggers, in one group.
  std::vector<pending_report> all_wait(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      add();
    group_size = n;
    std::vector<pending_report> open;
    for (std::size_t i = 0; i < n; ++i) {
      average_vector what;
      what.elements = 3;
      what.require_trigger = what.calls_members = true;
      what.step = 1;
      open.push_back(average(i, what));
    }
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_EQ(stage(i), step_stage::awaiting_trigger);
    return open;
  }
  void trigger(std::size_t who, std::vector<float> values) {
    tell(peers[who]->averager, trigger_step{1, vector(std::move(values)), 1.0, 30s});
  }
  pending_call call_of(std::size_t who) {
    return ask_later<step_called>(peers[who]->averager, await_call{1});
  }
  void lose_link(std::size_t who, std::size_t to) {
    tell(peers[who]->averager,
         peer_disconnected{peers[to]->ctx.record.id, {ec::peer_lost, "as the test wants"}});
  }
};

TEST_F(WaitingSteps, TheFirstThatBeginsCallsTheOthers) {
  auto open = all_wait(3);
  auto first = call_of(1);
  EXPECT_FALSE(first.answered());
  pass(20s); // longer than messages of unknown rounds are kept
  trigger(0, {3, 3, 3});
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(call_of(2).get().ok()) << "also if the question comes later";
  trigger(1, {0, 0, 0});
  trigger(2, {0, 3, 6});
  for (const auto& report : open) {
    ASSERT_TRUE(report.get().ok());
    EXPECT_EQ(report.get()->outcome, round_outcome::complete);
    EXPECT_THAT(*report.get()->values, ElementsAre(1, 2, 3));
  }
}

// A member that owns no part is sent nothing before its own contribution is there.
TEST_F(WaitingSteps, AMemberThatReducesNothingIsCalledToo) {
  change_plan = [](round_plan& plan) {
    plan.shares.front() += plan.shares.back();
    plan.shares.back() = 0;
  };
  auto open = all_wait(2);
  auto call = call_of(1);
  trigger(0, {1, 1, 1});
  EXPECT_TRUE(call.get().ok());
  trigger(1, {3, 3, 3});
  ASSERT_TRUE(open[1].get().ok());
  EXPECT_THAT(*open[1].get()->values, ElementsAre(2, 2, 2));
}

TEST_F(WaitingSteps, TheQuestionEndsWithTheStep) {
  auto open = all_wait(2);
  auto call = call_of(1);
  tell(peers[1]->averager, cancel_step{1});
  EXPECT_EQ(call.get().error().code, ec::cancelled);
  EXPECT_EQ(call_of(1).get().error().code, ec::cancelled);
  EXPECT_EQ(open[1].get()->why.code, ec::cancelled);
}

TEST_F(WaitingSteps, ALargeVectorThatArrivesBeforeTheTriggerIsKept) {
  for (int i = 0; i < 2; ++i)
    add();
  std::vector<float> many(6'000); // 1,500 parts for each of them, who are still strangers
  auto waits = question({});
  waits.values = nullptr;
  waits.elements = many.size();
  waits.require_trigger = true;
  auto late = average(1, waits);
  auto early = average(0, question(many));
  EXPECT_EQ(stage(0), step_stage::running_allreduce);
  trigger(1, many);
  ASSERT_TRUE(early.get().ok()) << "no message was dropped, so nobody waits for one";
  EXPECT_EQ(early.get()->outcome, round_outcome::complete);
  EXPECT_EQ(late.get()->outcome, round_outcome::complete);
}

TEST_F(WaitingSteps, TheRoundGoesOnAtOnceWithoutAMemberWhoseLinkWasLost) {
  auto open = all_wait(3);
  for (std::size_t i : {0, 1})
    lose_link(i, 2);
  peers[2]->deaf = true;
  EXPECT_EQ(stage(0), step_stage::awaiting_trigger) << "two are enough";
  pass(3s);
  trigger(0, {1, 1, 1});
  trigger(1, {3, 3, 3});
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get().ok()) << "no timeout is waited for";
    EXPECT_EQ(open[i].get()->contributors.size(), 2U);
    EXPECT_THAT(*open[i].get()->values, ElementsAre(2, 2, 2));
  }
}

TEST_F(WaitingSteps, TheRoundGoesOnAtOnceWithoutAMemberThatLeft) {
  auto open = all_wait(3);
  tell(peers[2]->averager, cancel_step{1});
  EXPECT_EQ(stage(0), step_stage::awaiting_trigger);
  pass(20s); // what it said is not forgotten
  trigger(0, {1, 1, 1});
  trigger(1, {3, 3, 3});
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get().ok()) << "no timeout is waited for";
    EXPECT_THAT(*open[i].get()->values, ElementsAre(2, 2, 2));
    for (const auto& fault : open[i].get()->faults)
      EXPECT_FALSE(fault.seen) << "nobody blames it: " << to_string(fault.reason);
  }
}

TEST_F(WaitingSteps, AGroupThatIsTooSmallForARoundSearchesAgainAtOnce) {
  auto open = all_wait(2);
  group_size = 3;
  lose_link(0, 1);
  EXPECT_EQ(stage(0), step_stage::looking_for_group);
  EXPECT_EQ(stage(1), step_stage::looking_for_group) << "the other one is told";
  add();
  auto third = average(2, question({2, 2, 2}));
  EXPECT_EQ(stage(0), step_stage::awaiting_trigger) << "the step waits again";
  trigger(0, {1, 1, 1});
  trigger(1, {3, 3, 3});
  ASSERT_TRUE(third.get().ok());
  EXPECT_THAT(*third.get()->values, ElementsAre(2, 2, 2));
}

TEST_F(WaitingSteps, AGroupThatFallsApartAgainAndAgainEndsTheStep) {
  averaging_config config;
  auto open = all_wait(2);
  for (std::uint32_t i = 0; i <= config.retries_max; ++i)
    lose_link(0, 1);
  ASSERT_TRUE(open[0].get().ok());
  EXPECT_EQ(open[0].get()->why.code, ec::lost_quorum);
  EXPECT_TRUE(open[0].get()->round.is_zero()) << "no round was begun";
}

// It has given up its search, and its matchmaker has just found a group.
TEST_F(WaitingSteps, AGroupThatIsFoundTooLateIsDeclined) {
  add();
  add();
  auto open = average(0, question({1}));
  caf::anon_send(peers[1]->averager, question({3}));
  caf::anon_send(peers[0]->averager, cancel_step{1});
  settle();
  EXPECT_EQ(open.get()->why.code, ec::cancelled);
  EXPECT_EQ(groups, 1U) << "the case that this test is about";
  EXPECT_EQ(stage(1), step_stage::looking_for_group) << "it does not wait for the other one";
}

} // namespace
} // namespace waggle
