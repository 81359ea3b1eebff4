#include "runtime/averaging/entry_search.hpp"

#include <gtest/gtest.h>

#include "runtime/crypto/digest.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

struct EntrySearch : ::testing::Test {
  peer_record peer(std::size_t i) const { return plan.members[i].peer; }
  entry_search among(std::initializer_list<std::size_t> named) const {
    std::vector<peer_record> through;
    for (auto i : named)
      through.push_back(peer(i));
    return {through, sha256("branch"), peer(0).id};
  }
  static failure not_a_leader() { return {ec::not_a_leader, "it refused"}; }

  round_plan plan = plan_for(40);
};

TEST_F(EntrySearch, AsksOneAfterAnotherAndKeepsTheLastRefusal) {
  auto search = among({1, 2});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(1).id));
  search.refused({ec::group_full, "full"});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(2).id));
  EXPECT_FALSE(search.asks(peer(1).id));
  search.refused({ec::timeout, "silent"});
  EXPECT_FALSE(search.next());
  EXPECT_EQ(search.why().code, ec::timeout);
}

TEST_F(EntrySearch, LooksFurtherOnceAPeerHasAcceptedSeveralTimesWithoutAdmitting) {
  auto search = among({1, 2});
  ASSERT_TRUE(search.next());
  for (int i = 1; i < entry_search::acceptances_max; ++i)
    EXPECT_FALSE(search.accepted());
  EXPECT_TRUE(search.accepted());
  EXPECT_TRUE(search.asks(peer(2).id));
  EXPECT_TRUE(search.expects(peer(1).id)) << "its plan is still welcome";
  for (int i = 0; i < 10; ++i)
    EXPECT_FALSE(search.accepted()) << "no other is left";
}

TEST_F(EntrySearch, ReportsThatTheLeaderExcludesUsIfTheOthersReferToIt) {
  auto search = among({1, 2});
  ASSERT_TRUE(search.next());
  search.refused({ec::excluded, "it refused"});
  ASSERT_TRUE(search.next());
  search.refused(not_a_leader(), {peer(1)});
  EXPECT_FALSE(search.next());
  EXPECT_EQ(search.why().code, ec::excluded);
}

TEST_F(EntrySearch, WithoutPeersItFails) {
  auto search = among({});
  EXPECT_FALSE(search.next());
  EXPECT_EQ(search.why().code, ec::no_donor);
}

TEST_F(EntrySearch, TheLeaderThatAMemberNamesIsAskedFirst) {
  auto search = among({1, 2});
  ASSERT_TRUE(search.next());
  search.refused(not_a_leader(), {peer(5), peer(6)});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(5).id));
}

TEST_F(EntrySearch, OnlyANonLeaderRefersToAnotherPeer) {
  auto search = among({1});
  ASSERT_TRUE(search.next());
  search.refused({ec::schema_mismatch, "another model"}, {peer(5)});
  EXPECT_FALSE(search.next());
}

TEST_F(EntrySearch, NoPeerIsAskedTwiceAndNeverThisOne) {
  auto search = among({1, 2, 1, 0});
  ASSERT_TRUE(search.next());
  search.refused(not_a_leader(), {peer(0)});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(2).id));
  search.refused(not_a_leader(), {peer(1)});
  EXPECT_FALSE(search.next());
}

TEST_F(EntrySearch, ReferralsAreBounded) {
  auto search = among({1});
  std::size_t asked = 0;
  for (std::size_t i = 2; search.next(); ++i, ++asked) {
    ASSERT_LT(i, plan.members.size());
    search.refused(not_a_leader(), {peer(i)});
  }
  EXPECT_EQ(asked, 1 + entry_search::suggestions_max);
}

TEST_F(EntrySearch, ALeaderThatDoesNotAdmitUsIsLeftForAnother) {
  auto search = among({1, 2});
  ASSERT_TRUE(search.next()); // 1 accepts us
  ASSERT_TRUE(search.look_further());
  EXPECT_TRUE(search.asks(peer(2).id));
  EXPECT_TRUE(search.expects(peer(1).id)) << "its plan is still welcome";
  EXPECT_FALSE(search.expects(peer(3).id));
  search.refused(not_a_leader(), {peer(3)});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(3).id)) << "the leader of the others";
}

TEST_F(EntrySearch, ALeaderThatAMemberConfirmsIsAwaited) {
  auto search = among({1, 2, 3});
  ASSERT_TRUE(search.next());
  ASSERT_TRUE(search.look_further());
  search.refused(not_a_leader(), {peer(1)});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(1).id));
  EXPECT_FALSE(search.look_further());
}

TEST_F(EntrySearch, ALeaderIsAwaitedIfNobodyElseAdmitsUs) {
  auto search = among({1, 2});
  ASSERT_TRUE(search.next());
  ASSERT_TRUE(search.look_further());
  search.refused({ec::not_ready, "in no group"});
  ASSERT_TRUE(search.next());
  EXPECT_TRUE(search.asks(peer(1).id));
  EXPECT_FALSE(search.look_further()) << "there is no other";
}

TEST_F(EntrySearch, AMemberLearnsOnceThatTheLeaderItNamesIsNotReached) {
  for (ec why : {ec::unreachable, ec::timeout, ec::peer_lost})
    for (bool leader_first : {true, false}) {
      auto search = leader_first ? among({2, 1, 3}) : among({1, 3});
      auto ask = [&](std::size_t who) {
        EXPECT_TRUE(search.next());
        EXPECT_TRUE(search.asks(peer(who).id)) << who;
      };
      if (leader_first) {
        ask(2);
        search.refused({why, "no answer"});
      }
      ask(1);
      EXPECT_TRUE(search.unreached().is_zero());
      search.refused(not_a_leader(), {peer(2)});
      if (!leader_first) {
        ask(2);
        search.refused({why, "no answer"});
      }
      ask(1);
      EXPECT_EQ(search.unreached(), peer(2).id);
      search.refused(not_a_leader(), {peer(2)});
      ask(3);
      EXPECT_TRUE(search.unreached().is_zero()) << "the next search tells it another member";
      search.refused(not_a_leader(), {peer(2)});
      EXPECT_FALSE(search.next());
      EXPECT_EQ(search.why().code, ec::unreachable);
      EXPECT_FALSE(awaited_after(search.why()).empty());
    }
}

TEST_F(EntrySearch, WhatNoMemberNamesAsItsLeaderIsJustNotReached) {
  auto search = among({2, 1});
  ASSERT_TRUE(search.next());
  search.refused({ec::unreachable, "no route"});
  ASSERT_TRUE(search.next());
  search.refused({ec::not_ready, "in no group"});
  EXPECT_FALSE(search.next());
  EXPECT_EQ(search.why().code, ec::not_ready);
}

} // namespace
} // namespace waggle
