// Groups of one round that were found and whose members have not all begun the round.

#include "tests/actors/averager/averager_fixture.hpp"

namespace waggle {
namespace {

using ::testing::ElementsAre;

class WaitingSteps : public Averager {
protected:
  using pending_round = pending<group_round>;

  /// So many peers, in one group for vectors of three values.
  void all_find(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      add();
    group_size = n;
    std::vector<pending<group_formed>> open;
    for (std::size_t i = 0; i < n; ++i)
      open.push_back(find(i, 3));
    settle();
    for (const auto& o : open)
      EXPECT_TRUE(o.get().ok());
  }
  static std::vector<float> of(std::size_t who) { return {static_cast<float>(who), 0, 0}; }
  void lose(std::size_t who) {
    for (std::size_t i : {0, 1})
      tell(peers[i]->group,
           peer_disconnected{peers[who]->ctx.record.id, {ec::peer_lost, "as the test wants"}});
  }
};

TEST_F(WaitingSteps, TheCallerLearnsThatItsGroupWasFound) {
  add();
  add();
  group_size = 2;
  auto search = find(0, 3);
  pass(10s);
  EXPECT_FALSE(search.answered());
  EXPECT_TRUE(find(1, 3).get().ok());
  EXPECT_TRUE(search.get().ok());
  auto first = average_once(0, {1, 1, 1});
  EXPECT_FALSE(first.answered());
  auto second = average_once(1, {3, 3, 3});
  EXPECT_THAT(*first.get()->report.values, ElementsAre(2, 2, 2));
  EXPECT_FALSE(first.get()->group.member) << "it was for this round";
}

TEST_F(WaitingSteps, TheCallerLearnsThatTheSearchEndedWithoutAGroup) {
  add();
  group_size = 2;
  auto search = find(0, 3);
  tell(peers[0]->group, quit_group{});
  EXPECT_EQ(search.get().error().code, ec::cancelled);
}

TEST_F(WaitingSteps, ALargeVectorThatArrivesBeforeItsReceiverBeginsIsKept) {
  for (int i = 0; i < 2; ++i)
    add();
  std::vector<float> many(6'000); // 1,500 parts for each of them, who are still strangers
  auto late = find(1, many.size());
  auto early = find(0, many.size());
  auto first = average_once(0, many);
  EXPECT_FALSE(first.answered());
  auto second = average_once(1, many);
  ASSERT_TRUE(first.get().ok()) << "no message was dropped, so nobody waits for one";
  EXPECT_EQ(first.get()->report.outcome, round_outcome::complete);
  EXPECT_EQ(second.get()->report.outcome, round_outcome::complete);
}

TEST_F(WaitingSteps, TheRoundGoesOnAtOnceWithoutAMemberWhoseLinkWasLost) {
  all_find(3);
  lose(2);
  peers[2]->deaf = true;
  std::vector<pending_round> open{average_once(0, {1, 1, 1}), average_once(1, {3, 3, 3})};
  for (std::size_t i : {0, 1}) {
    ASSERT_TRUE(open[i].get().ok()) << "no timeout is waited for";
    EXPECT_EQ(open[i].get()->report.contributors.size(), 2U);
    EXPECT_THAT(*open[i].get()->report.values, ElementsAre(2, 2, 2));
  }
}

TEST_F(WaitingSteps, AMemberWhoseLinkReturnsTakesPart) {
  all_find(3);
  lose(2);
  for (std::size_t i : {0, 1})
    tell(peers[i]->group, peer_connected{peers[2]->ctx.record});
  std::vector<pending_round> open;
  for (std::size_t i : {0, 1, 2})
    open.push_back(average_once(i, of(i)));
  EXPECT_EQ(open[0].get()->report.contributors.size(), 3U);
}

TEST_F(WaitingSteps, AMemberWhoseValuesComeLateIsWaitedFor) {
  all_find(3);
  std::vector<pending_round> open{average_once(0, of(0)), average_once(1, of(1))};
  pass(averaging_config{}.round.stall_timeout * 3 / 4); // its copy takes so long
  open.push_back(average_once(2, of(2)));
  for (const auto& round : open) {
    EXPECT_EQ(round.get()->report.outcome, round_outcome::complete);
    EXPECT_THAT(*round.get()->report.values, ElementsAre(1, 0, 0));
  }
}

TEST_F(WaitingSteps, TheWeightComesWithTheValues) {
  all_find(3);
  std::vector<pending_round> open;
  for (std::size_t i : {0, 1, 2})
    open.push_back(average_once(i, of(i), i == 2 ? 3 : 1));
  for (const auto& round : open)
    EXPECT_THAT(*round.get()->report.values, ElementsAre((0 + 1 + 3 * 2) / 5.0F, 0, 0));
}

TEST_F(WaitingSteps, TheRoundGoesOnAtOnceWithoutAMemberThatLeft) {
  all_find(3);
  tell(peers[2]->group, quit_group{});
  std::vector<pending_round> open{average_once(0, {1, 1, 1}), average_once(1, {3, 3, 3})};
  for (std::size_t i : {0, 1}) {
    auto round = open[i].get();
    ASSERT_TRUE(round.ok()) << "no timeout is waited for";
    EXPECT_THAT(*round->report.values, ElementsAre(2, 2, 2));
    for (const auto& fault : round->report.faults)
      EXPECT_FALSE(fault.seen) << "nobody blames it: " << to_string(fault.reason);
  }
}

TEST_F(WaitingSteps, ARunningRoundCanBeCancelled) {
  all_find(3);
  peers[0]->deaf = true; // the parts that it needs do not arrive
  std::vector<pending_round> open;
  for (std::size_t i : {0, 1, 2})
    open.push_back(average_once(i, {1, 2, 3}));
  EXPECT_FALSE(open[0].answered());
  tell(peers[0]->group, quit_group{});
  ASSERT_TRUE(open[0].get().ok());
  EXPECT_EQ(open[0].get()->report.why.code, ec::cancelled);
  EXPECT_EQ(open[0].get()->report.values, nullptr);
  for (std::size_t i : {1, 2}) {
    ASSERT_TRUE(open[i].get().ok()) << "the others need not wait for a timeout";
    EXPECT_THAT(*open[i].get()->report.values, ElementsAre(1, 2, 3));
  }
}

TEST_F(WaitingSteps, ASearchCanBeCancelled) {
  add();
  auto search = find(0, 1);
  EXPECT_EQ(searches.size(), 1U);
  tell(peers[0]->group, cancel_search{});
  EXPECT_EQ(search.get().error().code, ec::cancelled);
  EXPECT_TRUE(searches.empty());
  // And the next step is not delayed.
  add();
  auto reports = average_all({question({1}), question({3})});
  EXPECT_THAT(*reports[0].values, ElementsAre(2));
}

TEST_F(WaitingSteps, AGroupThatWasFoundIsNoSearchThatCanBeCancelled) {
  all_find(2);
  tell(peers[0]->group, cancel_search{});
  auto first = average_once(0, {1, 1, 1});
  auto second = average_once(1, {3, 3, 3});
  EXPECT_EQ(first.get()->report.outcome, round_outcome::complete);
}

// It has given up its search, and its matchmaker has just found a group.
TEST_F(WaitingSteps, AGroupThatIsFoundTooLateIsDeclined) {
  add();
  add();
  auto given_up = find(0, 1);
  caf::anon_send(peers[1]->averager, question({3}));
  sched.run_once(); // it asks its group_averager
  caf::anon_send(peers[0]->group, cancel_search{});
  settle();
  EXPECT_EQ(given_up.get().error().code, ec::cancelled);
  EXPECT_EQ(groups, 1U) << "the case that this test is about";
  EXPECT_EQ(searches.size(), 1U) << "the other one does not wait for it, and searches again";
}

} // namespace
} // namespace waggle
