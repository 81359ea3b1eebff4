// Steps that have found their group and wait for their trigger.

#include "tests/actors/averager/averager_fixture.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;

class WaitingSteps : public Averager {
protected:
  /// A question without values: they come with the trigger.
  static average_vector later(std::size_t elements) {
    average_vector what;
    what.elements = elements;
    what.require_trigger = true;
    what.step = 1;
    return what;
  }
  /// So many peers whose steps all wait for their triggers, in one group.
  std::vector<pending_report> all_wait(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      add();
    group_size = n;
    std::vector<pending_report> open;
    for (std::size_t i = 0; i < n; ++i)
      open.push_back(average(i, later(3)));
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_EQ(stage(i), step_stage::awaiting_trigger);
    return open;
  }
  void trigger(std::size_t who, std::vector<float> values) {
    tell(peers[who]->averager, trigger_step{1, vector(std::move(values)), 1.0});
  }
  pending<step_stage> search_of(std::size_t who) {
    return ask_later<step_stage>(peers[who]->averager, await_group{1});
  }
  step_stage end_of_search(std::size_t who) { return *search_of(who).get(); }
};

TEST_F(WaitingSteps, TheCallerLearnsThatItsGroupWasFound) {
  add();
  add();
  group_size = 2;
  auto first = average(0, later(3));
  auto search = search_of(0);
  pass(10s);
  EXPECT_FALSE(search.answered());
  auto second = average(1, later(3));
  EXPECT_EQ(*search.get(), step_stage::awaiting_trigger);
  EXPECT_EQ(end_of_search(1), step_stage::awaiting_trigger) << "also if it asks later";
  trigger(0, {1, 1, 1});
  EXPECT_EQ(end_of_search(0), step_stage::running_allreduce);
  trigger(1, {3, 3, 3});
  EXPECT_THAT(*first.get()->values, ElementsAre(2, 2, 2));
  EXPECT_EQ(end_of_search(0), step_stage::finished);
}

TEST_F(WaitingSteps, TheCallerLearnsThatTheStepEndedWithoutAGroup) {
  add();
  group_size = 2;
  auto step = average(0, later(3));
  auto search = search_of(0);
  tell(peers[0]->averager, cancel_step{1});
  EXPECT_EQ(*search.get(), step_stage::finished);
  EXPECT_EQ(step.get()->why.code, ec::cancelled);
}

TEST_F(WaitingSteps, ALargeVectorThatArrivesBeforeTheTriggerIsKept) {
  for (int i = 0; i < 2; ++i)
    add();
  std::vector<float> many(6'000); // 1,500 parts for each of them, who are still strangers
  auto late = average(1, later(many.size()));
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
    tell(peers[i]->averager,
         peer_disconnected{peers[2]->ctx.record.id, {ec::peer_lost, "as the test wants"}});
  peers[2]->deaf = true;
  trigger(0, {1, 1, 1});
  trigger(1, {3, 3, 3});
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get().ok()) << "no timeout is waited for";
    EXPECT_EQ(open[i].get()->contributors.size(), 2U);
    EXPECT_THAT(*open[i].get()->values, ElementsAre(2, 2, 2));
  }
}

TEST_F(WaitingSteps, AMemberWhoseLinkReturnsTakesPart) {
  auto open = all_wait(3);
  for (std::size_t i : {0, 1}) {
    tell(peers[i]->averager,
         peer_disconnected{peers[2]->ctx.record.id, {ec::peer_lost, "as the test wants"}});
    tell(peers[i]->averager, peer_connected{peers[2]->ctx.record});
  }
  for (std::size_t i : {0, 1, 2})
    trigger(i, {static_cast<float>(i), 0, 0});
  EXPECT_EQ(open[0].get()->contributors.size(), 3U);
}

TEST_F(WaitingSteps, AMemberWhoseValuesComeLateIsWaitedFor) {
  auto open = all_wait(3);
  trigger(0, {0, 0, 0});
  trigger(1, {1, 1, 1});
  pass(averaging_config{}.round.stall_timeout * 3 / 4); // its copy takes so long
  trigger(2, {2, 2, 2});
  for (const auto& report : open) {
    EXPECT_EQ(report.get()->outcome, round_outcome::complete);
    EXPECT_THAT(*report.get()->values, ElementsAre(1, 1, 1));
  }
}

TEST_F(WaitingSteps, TheRoundGoesOnAtOnceWithoutAMemberThatLeft) {
  auto open = all_wait(3);
  tell(peers[2]->averager, cancel_step{1});
  trigger(0, {1, 1, 1});
  trigger(1, {3, 3, 3});
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get().ok()) << "no timeout is waited for";
    EXPECT_THAT(*open[i].get()->values, ElementsAre(2, 2, 2));
    for (const auto& fault : open[i].get()->faults)
      EXPECT_FALSE(fault.seen) << "nobody blames it: " << to_string(fault.reason);
  }
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
