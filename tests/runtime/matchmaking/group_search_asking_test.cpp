// A search on its own: which peers it asks, and how it handles the answers.

#include <gmock/gmock.h>

#include "runtime/matchmaking/group_search.hpp"
#include "tests/runtime/matchmaking/search_fixture.hpp"

namespace waggle {
namespace {

// -- declaring and looking up --------------------------------------------------------------------

TEST_F(GroupSearch, DeclaresItsExpirationAndLooksUp) {
  auto search = make();
  auto actions = search.start(now);
  EXPECT_EQ(the<group_search::declare>(actions).expiration, own());
  EXPECT_EQ(count<group_search::look_up>(actions), 1u);
  EXPECT_EQ(asked(actions), 0u);
}

TEST_F(GroupSearch, NeverDeclaresBeyondItsDeadline) {
  patience = 1s;
  EXPECT_EQ(all<group_search::declare>(make().start(now))[0].expiration, at(1s));
}

TEST_F(GroupSearch, ClientDeclaresNothing) {
  auto search = make(true);
  auto actions = search.start(now);
  EXPECT_EQ(count<group_search::declare>(actions), 0u);
  EXPECT_EQ(count<group_search::look_up>(actions), 1u);
}

TEST_F(GroupSearch, LooksUpAgainAtEveryInterval) {
  auto search = started();
  pass(opts.look_up_interval - 1ms);
  EXPECT_EQ(count<group_search::look_up>(search.on_time(now)), 0u);
  pass(1ms);
  EXPECT_EQ(count<group_search::look_up>(search.on_time(now)), 1u);
  EXPECT_EQ(count<group_search::look_up>(search.on_time(now)), 0u);
}

TEST_F(GroupSearch, DeclaresAgainWhenItExpiresAlone) {
  auto search = started();
  pass(opts.min_matchmaking_time);
  EXPECT_EQ(the<group_search::declare>(search.on_time(now)).expiration, own());
}

// -- which peer to ask ---------------------------------------------------------------------------

TEST_F(GroupSearch, AsksTheEarliestExpirationFirst) {
  EXPECT_EQ(asked_first({{1, at(400ms)}, {9, at(300ms)}}), 9u);
}

TEST_F(GroupSearch, BreaksTiesOfTimeByPeerId) {
  EXPECT_EQ(asked_first({{3, at(400ms)}, {2, at(400ms)}}), 2u);
}

TEST_F(GroupSearch, AsksNoPeerThatRanksAfterItself) {
  EXPECT_EQ(asked_first({{9, own()}, {1, own() + 1ns}}), 0u);
}

TEST_F(GroupSearch, AsksASmallerIdWithTheSameExpiration) {
  EXPECT_EQ(asked_first({{4, own()}}), 4u);
}

TEST_F(GroupSearch, AsksNoPeerWhoseExpirationPassed) {
  EXPECT_EQ(asked_first({{1, now.swarm - 1ns}}), 0u);
}

TEST_F(GroupSearch, ClientAsksAnyPeerThatDeclared) {
  auto search = make(true);
  search.candidate(peer(9), own() + 1h);
  auto actions = search.start(now);
  ASSERT_EQ(asked(actions), 9u);
  EXPECT_EQ(all<group_search::ask>(actions)[0].expiration, swarm_time::max());
}

TEST_F(GroupSearch, NeverAsksItselfOrAClient) {
  auto search = make();
  search.candidate(peer(5), at(1ms));
  search.candidate(peer(1, true), at(1ms));
  EXPECT_EQ(asked(search.start(now)), 0u);
}

TEST_F(GroupSearch, AsksConnectedPeersWithoutWaitingForTheTable) {
  EXPECT_EQ(asked_first({{8, {}}, {7, {}}}), 7u);
}

TEST_F(GroupSearch, PrefersPeersThatDeclaredToThoseThatAreOnlyConnected) {
  EXPECT_EQ(asked_first({{1, {}}, {4, at(300ms)}}), 4u);
}

TEST_F(GroupSearch, AsksOnePeerAtATime) {
  auto search = asking(1u, {{1, at(300ms)}, {2, at(300ms)}});
  pass(100ms);
  EXPECT_EQ(asked(search.on_time(now)), 0u);
}

/// One of many peers that somebody made up.
peer_record made_up(unsigned number) {
  auto out = peer(0);
  out.id.bytes[0] = static_cast<std::byte>(1 + number / 256);
  out.id.bytes[1] = static_cast<std::byte>(number % 256);
  return out;
}

TEST_F(GroupSearch, RemembersABoundedNumberOfCandidates) {
  auto search = make();
  for (unsigned i = 0; i < 5000; ++i)
    search.candidate(made_up(i), own() + 1h);
  (void)search.start(now);
  pass(patience);
  EXPECT_THAT(the<group_search::failed>(search.on_time(now)).why.detail,
              testing::HasSubstr("1024 candidates"));
}

TEST_F(GroupSearch, RemembersABoundedNumberOfPeersThatHintsName) {
  auto search = asking(3u, {{3, {}}});
  auto named = peer(3).id;
  for (unsigned i = 0; i < 2000; ++i) {
    auto asks = all<group_search::ask>(search.on_answer(named, ec::not_a_leader, made_up(i), now));
    ASSERT_EQ(asks.size(), 1u);
    named = asks[0].to.id;
  }
  (void)search.on_answer(named, ec::not_a_leader, {}, now);
  pass(patience);
  EXPECT_THAT(the<group_search::failed>(search.on_time(now)).why.detail,
              testing::HasSubstr("1024 candidates"));
}

// -- the answer ----------------------------------------------------------------------------------

TEST_F(GroupSearch, FollowsThePeerThatAcceptsAndAsksNoOther) {
  auto search = started_with({{1, at(300ms)}, {2, at(300ms)}});
  EXPECT_TRUE(search.on_answer(peer(1).id, ec::none, {}, now).empty());
  ASSERT_TRUE(search.leader());
  EXPECT_EQ(number_of(*search.leader()), 1u);
  pass(1s);
  auto actions = search.on_time(now);
  EXPECT_EQ(asked(actions), 0u);
  EXPECT_EQ(count<group_search::declare>(actions), 0u);
}

TEST_F(GroupSearch, AsksTheNextOneWhenRefused) {
  auto search = started_with({{1, at(300ms)}, {2, at(300ms)}});
  EXPECT_EQ(asked(search.on_answer(peer(1).id, ec::group_full, {}, now)), 2u);
}

TEST_F(GroupSearch, SoonAsksAgainAPeerThatWasNotLookingYet) {
  auto search = started_with({{1, {}}});
  EXPECT_EQ(asked(search.on_answer(peer(1).id, ec::not_looking, {}, now)), 0u);
  pass(opts.retry / 2 - 1ms);
  EXPECT_EQ(asked(search.on_time(now)), 0u);
  pass(opts.retry + 2ms);
  EXPECT_EQ(asked(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, NeverAsksAgainAPeerThatWantsAnotherKindOfGroup) {
  for (auto code : {ec::schema_mismatch, ec::wrong_group_key, ec::protocol_violation}) {
    auto search = make();
    search.candidate(peer(1), std::nullopt);
    ASSERT_EQ(asked(search.start(now)), 1u);
    EXPECT_EQ(asked(search.on_answer(peer(1).id, code, {}, now)), 0u);
    for (int i = 0; i < 50; ++i) {
      pass(50ms);
      EXPECT_EQ(asked(search.on_time(now)), 0u) << to_string(code);
    }
  }
}

TEST_F(GroupSearch, ANewDeclarationReplacesThePeersEarlierAnswer) {
  auto search = started_with({{1, at(300ms)}});
  (void)search.on_answer(peer(1).id, ec::timeout, {}, now);
  EXPECT_EQ(asked(search.on_time(now)), 0u);
  search.candidate(peer(1), at(400ms));
  EXPECT_EQ(asked(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, FollowsTheHintOfAPeerThatIsNotALeader) {
  auto search = started_with({{3, {}}});
  EXPECT_EQ(asked(search.on_answer(peer(3).id, ec::not_a_leader, peer(1), now)), 1u);
}

TEST_F(GroupSearch, IgnoresAHintThatNamesItself) {
  auto search = started_with({{3, {}}});
  EXPECT_EQ(asked(search.on_answer(peer(3).id, ec::not_a_leader, peer(5), now)), 0u);
}

TEST_F(GroupSearch, WithdrawsItsRequestWhenTheAnswerIsOverdue) {
  auto search = started_with({{1, {}}, {2, {}}});
  auto actions = search.on_answer(peer(1).id, ec::timeout, {}, now);
  EXPECT_EQ(number_of(the<group_search::leave>(actions).leader), 1u);
  EXPECT_EQ(asked(actions), 2u);
}

TEST_F(GroupSearch, DoesNotWaitForeverForAnAnswerThatIsNeverReported) {
  auto search = started_with({{1, {}}, {2, {}}});
  pass(opts.request_timeout + 1s + 1ms);
  EXPECT_EQ(asked(search.on_time(now)), 2u);
}

TEST_F(GroupSearch, LeavesAGroupThatAcceptsTooLate) {
  auto search = started_with({{1, {}}, {2, {}}});
  (void)search.on_answer(peer(1).id, ec::timeout, {}, now);
  (void)search.on_answer(peer(2).id, ec::none, {}, now);
  EXPECT_EQ(
    number_of(the<group_search::leave>(search.on_answer(peer(1).id, ec::none, {}, now)).leader),
    1u);
  EXPECT_EQ(number_of(*search.leader()), 2u);
}

TEST_F(GroupSearch, IgnoresAnswersOfPeersItDidNotAsk) {
  auto search = started();
  EXPECT_TRUE(search.on_answer(peer(1).id, ec::group_full, {}, now).empty());
  EXPECT_FALSE(search.leader());
}

TEST_F(GroupSearch, AsksAgainAPeerThatMovedIntoItsBucket) {
  auto search = asking(1u, {{1, {}}});
  (void)search.on_answer(peer(1).id, ec::wrong_group_key, {}, now);
  search.candidate(peer(1), at(400ms));
  EXPECT_EQ(asked(search.on_time(now)), 1u);
  (void)search.on_answer(peer(1).id, ec::schema_mismatch, {}, now);
  search.candidate(peer(1), at(500ms));
  EXPECT_EQ(asked(search.on_time(now)), 0u) << "its vector is still a different one";
}

} // namespace
} // namespace waggle
