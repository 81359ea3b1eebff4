// A search that was accepted by a leader.

#include <gmock/gmock.h>

#include "runtime/matchmaking/group_search.hpp"
#include "tests/runtime/matchmaking/search_fixture.hpp"

namespace waggle {
namespace {

// -- following -----------------------------------------------------------------------------------

TEST_F(GroupSearch, TheLeadersBeginEndsTheSearch) {
  auto search = following(1);
  EXPECT_FALSE(search.on_begin(peer(2).id));
  EXPECT_TRUE(search.on_begin(peer(1).id));
  EXPECT_TRUE(search.done());
  EXPECT_FALSE(search.on_begin(peer(1).id));
}

TEST_F(GroupSearch, TheBeginningMayOvertakeTheAcceptance) {
  auto search = started_with({{1, {}}});
  (void)search.on_join(seeker(9), own(), now);
  EXPECT_TRUE(search.on_begin(peer(1).id));
  EXPECT_EQ(search.take_followers().size(), 1u);
  EXPECT_TRUE(search.on_answer(peer(1).id, ec::none, {}, now).empty());
}

TEST_F(GroupSearch, FollowsTheHintOfALeaderThatDisbands) {
  auto search = following(3);
  EXPECT_EQ(asked(search.on_disband(peer(3).id, peer(1), now)), 1u);
  EXPECT_FALSE(search.leader());
}

TEST_F(GroupSearch, SearchesOnWhenALeaderDisbandsWithoutAHint) {
  auto search = started_with({{3, {}}, {4, {}}});
  (void)search.on_answer(peer(3).id, ec::none, {}, now);
  EXPECT_NE(asked(search.on_disband(peer(3).id, std::nullopt, now)), 0u);
}

TEST_F(GroupSearch, OnlyItsLeaderCanDisbandIt) {
  auto search = following(3);
  EXPECT_TRUE(search.on_disband(peer(2).id, peer(1), now).empty());
  EXPECT_TRUE(search.leader());
}

TEST_F(GroupSearch, TheEndOfAGroupMayOvertakeTheAcceptance) {
  auto search = started_with({{3, {}}});
  EXPECT_TRUE(search.on_disband(peer(3).id, peer(1), now).empty());
  auto actions = search.on_answer(peer(3).id, ec::none, {}, now);
  EXPECT_FALSE(search.leader());
  EXPECT_EQ(count<group_search::leave>(actions), 1u);
  EXPECT_EQ(asked(actions), 1u);
}

TEST_F(GroupSearch, SearchesOnWhenItsLeaderIsLost) {
  auto search = started_with({{1, {}}, {2, {}}});
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  EXPECT_EQ(asked(search.on_lost(peer(1).id, now)), 2u);
}

TEST_F(GroupSearch, GivesUpALeaderWhoseDecisionIsOverdue) {
  auto search = following(1);
  pass(opts.min_matchmaking_time + opts.request_timeout - 1ms);
  EXPECT_EQ(count<group_search::leave>(search.on_time(now)), 0u);
  pass(1ms);
  auto actions = search.on_time(now);
  EXPECT_EQ(count<group_search::leave>(actions), 1u);
  EXPECT_EQ(count<group_search::declare>(actions), 1u);
  EXPECT_EQ(asked(actions), 0u) << "a silent leader is not asked again at once";
}

TEST_F(GroupSearch, AClientWaitsForALeaderThatBeganLater) {
  auto search = started(true);
  pass(opts.min_matchmaking_time - 100ms);
  search.candidate(peer(1), own());
  ASSERT_EQ(asked(search.on_time(now)), 1u);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  pass(opts.min_matchmaking_time);
  EXPECT_TRUE(search.on_time(now).empty());
  EXPECT_TRUE(search.on_begin(peer(1).id));
}

} // namespace
} // namespace waggle
