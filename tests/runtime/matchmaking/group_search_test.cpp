#include "runtime/matchmaking/group_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace waggle {
namespace {

peer_record peer(unsigned number, bool client = false) {
  peer_record out;
  out.id.bytes.back() = static_cast<std::byte>(number);
  if (!client)
    out.addresses.push_back({"peer-" + std::to_string(number), 7700});
  out.client_mode = client;
  return out;
}

group_search::seeker seeker(unsigned number, bool client = false) {
  return {peer(number, client), client, {}, client ? 1U : 0U, {}};
}

template <class Action>
std::vector<Action> all(const group_search::actions& actions) {
  std::vector<Action> out;
  for (const auto& action : actions)
    if (const auto* match = std::get_if<Action>(&action))
      out.push_back(*match);
  return out;
}

template <class Action>
std::size_t count(const group_search::actions& actions) {
  return all<Action>(actions).size();
}

/// Whom the actions ask; zero: nobody.
unsigned asked(const group_search::actions& actions) {
  auto asks = all<group_search::ask>(actions);
  return asks.empty() ? 0U : static_cast<unsigned>(asks.front().to.id.bytes.back());
}

unsigned number_of(const peer_record& p) {
  return static_cast<unsigned>(p.id.bytes.back());
}

/// Peer 5 searches; others may be smaller or larger than it.
class GroupSearch : public testing::Test {
protected:
  group_search::options opts;
  milliseconds patience{20'000};
  group_search::moment now{steady_time{1000h}, swarm_time{500'000h}};

  void pass(std::chrono::nanoseconds dt) {
    now.steady += dt;
    now.swarm += dt;
  }
  group_search make(bool client = false) {
    return {seeker(5, client), opts, now.steady + patience, random_source{1}};
  }
  swarm_time at(milliseconds after) const { return now.swarm + after; }
  /// The expiration that peer 5 declares if it starts now.
  swarm_time own() const { return at(opts.min_matchmaking_time); }
};

// -- declaring and looking up (§2.2) ------------------------------------------------------------

TEST_F(GroupSearch, DeclaresWhenItWillMakeDoAndLooksUp) {
  auto search = make();
  auto actions = search.start(now);
  auto declared = all<group_search::declare>(actions);
  ASSERT_EQ(declared.size(), 1u);
  EXPECT_EQ(declared[0].expiration, own());
  EXPECT_EQ(count<group_search::look_up>(actions), 1u);
  EXPECT_EQ(asked(actions), 0u);
}

TEST_F(GroupSearch, NeverDeclaresBeyondItsDeadline) {
  patience = 1s;
  auto search = make();
  EXPECT_EQ(all<group_search::declare>(search.start(now))[0].expiration, at(1s));
}

TEST_F(GroupSearch, ClientDeclaresNothing) {
  auto search = make(true);
  auto actions = search.start(now);
  EXPECT_EQ(count<group_search::declare>(actions), 0u);
  EXPECT_EQ(count<group_search::look_up>(actions), 1u);
}

TEST_F(GroupSearch, LooksUpAgainAtEveryInterval) {
  auto search = make();
  (void)search.start(now);
  pass(opts.look_up_interval - 1ms);
  EXPECT_EQ(count<group_search::look_up>(search.on_time(now)), 0u);
  pass(1ms);
  EXPECT_EQ(count<group_search::look_up>(search.on_time(now)), 1u);
  EXPECT_EQ(count<group_search::look_up>(search.on_time(now)), 0u);
}

TEST_F(GroupSearch, DeclaresAnewWhenItExpiresAlone) {
  auto search = make();
  (void)search.start(now);
  pass(opts.min_matchmaking_time);
  auto actions = search.on_time(now);
  auto declared = all<group_search::declare>(actions);
  ASSERT_EQ(declared.size(), 1u);
  EXPECT_EQ(declared[0].expiration, own());
}

// -- whom to ask (§3.2) -------------------------------------------------------------------------

TEST_F(GroupSearch, AsksTheEarliestExpirationFirst) {
  auto search = make();
  search.candidate(peer(1), at(400ms));
  search.candidate(peer(9), at(300ms));
  EXPECT_EQ(asked(search.start(now)), 9u);
}

TEST_F(GroupSearch, BreaksTiesOfTimeByPeerId) {
  auto search = make();
  search.candidate(peer(3), at(400ms));
  search.candidate(peer(2), at(400ms));
  EXPECT_EQ(asked(search.start(now)), 2u);
}

TEST_F(GroupSearch, AsksNobodyWhoComesAfterItself) {
  auto search = make();
  search.candidate(peer(9), own());
  search.candidate(peer(1), own() + 1ns);
  EXPECT_EQ(asked(search.start(now)), 0u);
}

TEST_F(GroupSearch, AsksASmallerIdWithTheSameExpiration) {
  auto search = make();
  search.candidate(peer(4), own());
  EXPECT_EQ(asked(search.start(now)), 4u);
}

TEST_F(GroupSearch, AsksNobodyWhoseExpirationPassed) {
  auto search = make();
  search.candidate(peer(1), now.swarm - 1ns);
  EXPECT_EQ(asked(search.start(now)), 0u);
}

TEST_F(GroupSearch, ClientAsksWhoeverDeclared) {
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
  auto search = make();
  search.candidate(peer(8), std::nullopt);
  search.candidate(peer(7), std::nullopt);
  EXPECT_EQ(asked(search.start(now)), 7u);
}

TEST_F(GroupSearch, PrefersThoseWhoDeclaredToThoseWhoAreOnlyConnected) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  search.candidate(peer(4), at(300ms));
  EXPECT_EQ(asked(search.start(now)), 4u);
}

TEST_F(GroupSearch, AsksOnePeerAtATime) {
  auto search = make();
  search.candidate(peer(1), at(300ms));
  search.candidate(peer(2), at(300ms));
  ASSERT_EQ(asked(search.start(now)), 1u);
  pass(100ms);
  EXPECT_EQ(asked(search.on_time(now)), 0u);
}

TEST_F(GroupSearch, RemembersABoundedNumberOfCandidates) {
  auto search = make();
  for (unsigned i = 0; i < 5000; ++i) {
    auto flood = peer(0);
    flood.id.bytes[0] = static_cast<std::byte>(1 + i / 256);
    flood.id.bytes[1] = static_cast<std::byte>(i % 256);
    search.candidate(flood, own() + 1h);
  }
  (void)search.start(now);
  pass(patience);
  auto failed = all<group_search::failed>(search.on_time(now));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_THAT(failed[0].why.detail, testing::HasSubstr("1024 candidates"));
}

// -- the answer (§3.3) --------------------------------------------------------------------------

TEST_F(GroupSearch, FollowsWhoAcceptsAndAsksNobodyElse) {
  auto search = make();
  search.candidate(peer(1), at(300ms));
  search.candidate(peer(2), at(300ms));
  (void)search.start(now);
  EXPECT_TRUE(search.on_answer(peer(1).id, ec::none, {}, now).empty());
  ASSERT_TRUE(search.leader());
  EXPECT_EQ(number_of(*search.leader()), 1u);
  pass(1s);
  auto actions = search.on_time(now);
  EXPECT_EQ(asked(actions), 0u);
  EXPECT_EQ(count<group_search::declare>(actions), 0u);
}

TEST_F(GroupSearch, AsksTheNextOneWhenRefused) {
  auto search = make();
  search.candidate(peer(1), at(300ms));
  search.candidate(peer(2), at(300ms));
  (void)search.start(now);
  EXPECT_EQ(asked(search.on_answer(peer(1).id, ec::group_full, {}, now)), 2u);
}

TEST_F(GroupSearch, AsksAgainSoonWhoWasNotLookingYet) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  EXPECT_EQ(asked(search.on_answer(peer(1).id, ec::not_looking, {}, now)), 0u);
  pass(opts.retry / 2 - 1ms);
  EXPECT_EQ(asked(search.on_time(now)), 0u);
  pass(opts.retry + 2ms);
  EXPECT_EQ(asked(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, NeverAsksAgainWhoWantsAnotherKindOfGroup) {
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

TEST_F(GroupSearch, ANewDeclarationWipesOutWhatItsPeerSaidBefore) {
  auto search = make();
  search.candidate(peer(1), at(300ms));
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::timeout, {}, now);
  EXPECT_EQ(asked(search.on_time(now)), 0u);
  search.candidate(peer(1), at(400ms));
  EXPECT_EQ(asked(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, FollowsTheHintOfWhoIsNotALeader) {
  auto search = make();
  search.candidate(peer(3), std::nullopt);
  (void)search.start(now);
  EXPECT_EQ(asked(search.on_answer(peer(3).id, ec::not_a_leader, peer(1), now)), 1u);
}

TEST_F(GroupSearch, IgnoresAHintThatNamesItself) {
  auto search = make();
  search.candidate(peer(3), std::nullopt);
  (void)search.start(now);
  EXPECT_EQ(asked(search.on_answer(peer(3).id, ec::not_a_leader, peer(5), now)), 0u);
}

TEST_F(GroupSearch, TakesBackItsQuestionWhenTheAnswerIsOverdue) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  search.candidate(peer(2), std::nullopt);
  (void)search.start(now);
  auto actions = search.on_answer(peer(1).id, ec::timeout, {}, now);
  auto leaves = all<group_search::leave>(actions);
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(number_of(leaves[0].leader), 1u);
  EXPECT_EQ(asked(actions), 2u);
}

TEST_F(GroupSearch, DoesNotWaitForEverForAnAnswerThatNobodyReports) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  search.candidate(peer(2), std::nullopt);
  (void)search.start(now);
  pass(opts.request_timeout + 1s + 1ms);
  EXPECT_EQ(asked(search.on_time(now)), 2u);
}

TEST_F(GroupSearch, LeavesAGroupThatAcceptsTooLate) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  search.candidate(peer(2), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::timeout, {}, now);
  (void)search.on_answer(peer(2).id, ec::none, {}, now);
  auto leaves = all<group_search::leave>(search.on_answer(peer(1).id, ec::none, {}, now));
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(number_of(leaves[0].leader), 1u);
  EXPECT_EQ(number_of(*search.leader()), 2u);
}

TEST_F(GroupSearch, IgnoresAnswersOfPeersItDidNotAsk) {
  auto search = make();
  (void)search.start(now);
  EXPECT_TRUE(search.on_answer(peer(1).id, ec::group_full, {}, now).empty());
  EXPECT_FALSE(search.leader());
}

// -- the checks on a request, in their order (§3.4) ---------------------------------------------

TEST_F(GroupSearch, RefusesToBeJoinedBeforeItSearchesAndAfterwards) {
  auto search = make();
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::not_looking);
  (void)search.start(now);
  (void)search.cancel({ec::cancelled, {}});
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::not_looking);
}

TEST_F(GroupSearch, ClientAcceptsNobody) {
  auto search = make(true);
  (void)search.start(now);
  EXPECT_EQ(search.on_join(seeker(9), own() + 1h, now).code, ec::protocol_violation);
}

TEST_F(GroupSearch, RefusesWhoExpiresBeforeItAndAsksItBack) {
  auto search = make();
  (void)search.start(now);
  auto answer = search.on_join(seeker(1), at(300ms), now);
  EXPECT_EQ(answer.code, ec::bad_expiration);
  EXPECT_EQ(asked(answer.then), 1u);
}

TEST_F(GroupSearch, ExpirationIsCheckedBeforeLeadership) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  EXPECT_EQ(search.on_join(seeker(2), at(300ms), now).code, ec::bad_expiration);
}

TEST_F(GroupSearch, EqualExpirationsAreDecidedByPeerId) {
  auto search = make();
  (void)search.start(now);
  EXPECT_EQ(search.on_join(seeker(4), own(), now).code, ec::bad_expiration);
  EXPECT_EQ(search.on_join(seeker(6), own(), now).code, ec::none);
}

TEST_F(GroupSearch, FollowerNamesItsLeaderToWhoAsksIt) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  auto answer = search.on_join(seeker(9), own(), now);
  EXPECT_EQ(answer.code, ec::not_a_leader);
  ASSERT_TRUE(answer.suggested);
  EXPECT_EQ(number_of(*answer.suggested), 1u);
}

TEST_F(GroupSearch, RefusesADuplicateAndItself) {
  auto search = make();
  (void)search.start(now);
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::none);
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::duplicate_peer);
  EXPECT_EQ(search.on_join(seeker(5), own(), now).code, ec::duplicate_peer);
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, ACompleteGroupLooksForNobodyElse) {
  opts.target_group_size = 2;
  auto search = make();
  (void)search.start(now);
  EXPECT_EQ(search.on_join(seeker(8), own(), now).code, ec::none);
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::not_looking);
}

TEST_F(GroupSearch, AcceptsAClientWhateverItsExpiration) {
  auto search = make();
  (void)search.start(now);
  EXPECT_EQ(search.on_join(seeker(1, true), at(1ms), now).code, ec::none);
}

TEST_F(GroupSearch, AnswersJoinsWhileItsOwnQuestionIsPending) {
  auto search = make();
  search.candidate(peer(1), at(300ms));
  ASSERT_EQ(asked(search.start(now)), 1u);
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::none);
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, OfTwoWhoAskEachOtherTheSmallerAccepts) {
  // 5 asks 7 without knowing its expiration while 7 asks 5: 5 comes first.
  auto search = make();
  search.candidate(peer(7), std::nullopt);
  ASSERT_EQ(asked(search.start(now)), 7u);
  EXPECT_EQ(search.on_join(seeker(7), own(), now).code, ec::none);
  (void)search.on_answer(peer(7).id, ec::bad_expiration, {}, now);
  EXPECT_FALSE(search.leader());
  EXPECT_EQ(search.followers(), 1u);
}

// -- leading (§3.3) -----------------------------------------------------------------------------

TEST_F(GroupSearch, BeginsAtOnceAtTheTargetSize) {
  opts.target_group_size = 3;
  auto search = make();
  (void)search.start(now);
  EXPECT_TRUE(search.on_join(seeker(8), own(), now).then.empty());
  auto answer = search.on_join(seeker(9), own(), now);
  EXPECT_EQ(answer.code, ec::none);
  auto begun = all<group_search::begin>(answer.then);
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].followers.size(), 2u);
  EXPECT_EQ(count<group_search::withdraw>(answer.then), 1u);
  EXPECT_TRUE(search.done());
}

TEST_F(GroupSearch, BeginsAtOnceWithTheExpectedPeers) {
  opts.expected_peers = 2;
  auto search = make();
  (void)search.start(now);
  EXPECT_EQ(count<group_search::begin>(search.on_join(seeker(9), own(), now).then), 1u);
}

TEST_F(GroupSearch, ExpectedPeersDoNotOverruleTheMinimum) {
  opts.expected_peers = 2;
  opts.min_group_size = 3;
  auto search = make();
  (void)search.start(now);
  EXPECT_EQ(count<group_search::begin>(search.on_join(seeker(9), own(), now).then), 0u);
  EXPECT_EQ(count<group_search::begin>(search.on_join(seeker(8), own(), now).then), 1u);
}

TEST_F(GroupSearch, ASmallerGroupBeginsWhenTheLeaderExpires) {
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  pass(opts.min_matchmaking_time - 1ms);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 0u);
  pass(1ms);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, DisbandsWithoutAHintWhenItExpiresWithTooFew) {
  opts.min_group_size = 3;
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  pass(opts.min_matchmaking_time);
  auto actions = search.on_time(now);
  auto disbanded = all<group_search::disband>(actions);
  ASSERT_EQ(disbanded.size(), 1u);
  ASSERT_EQ(disbanded[0].followers.size(), 1u);
  EXPECT_EQ(number_of(disbanded[0].followers[0]), 9u);
  EXPECT_FALSE(disbanded[0].suggested);
  EXPECT_EQ(count<group_search::declare>(actions), 1u);
  EXPECT_EQ(search.followers(), 0u);
}

TEST_F(GroupSearch, AGroupOfOneNeverWaitsForPartners) {
  opts.min_group_size = 1;
  opts.target_group_size = 1;
  auto search = make();
  EXPECT_EQ(count<group_search::begin>(search.start(now)), 1u);
}

TEST_F(GroupSearch, MinGroupSizeOneBeginsAloneAtTheFirstExpiration) {
  opts.min_group_size = 1;
  auto search = make();
  EXPECT_EQ(count<group_search::begin>(search.start(now)), 0u);
  pass(opts.min_matchmaking_time);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, ALeaderKeepsItsFollowersWhileItAsksABetterOne) {
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  search.candidate(peer(1), at(300ms));
  auto actions = search.on_time(now);
  EXPECT_EQ(asked(actions), 1u);
  EXPECT_EQ(count<group_search::disband>(actions), 0u);
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, HandsItsFollowersToTheLeaderThatAcceptsIt) {
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  search.candidate(peer(1), at(300ms));
  (void)search.on_time(now);
  auto disbanded = all<group_search::disband>(search.on_answer(peer(1).id, ec::none, {}, now));
  ASSERT_EQ(disbanded.size(), 1u);
  EXPECT_EQ(disbanded[0].followers.size(), 1u);
  ASSERT_TRUE(disbanded[0].suggested);
  EXPECT_EQ(number_of(*disbanded[0].suggested), 1u);
  EXPECT_EQ(search.followers(), 0u);
}

TEST_F(GroupSearch, TakesBackItsQuestionWhenItsOwnGroupBegins) {
  opts.target_group_size = 2;
  auto search = make();
  search.candidate(peer(1), at(300ms));
  (void)search.start(now);
  auto answer = search.on_join(seeker(9), own(), now);
  auto leaves = all<group_search::leave>(answer.then);
  ASSERT_EQ(leaves.size(), 1u);
  EXPECT_EQ(number_of(leaves[0].leader), 1u);
}

TEST_F(GroupSearch, DropsFollowersWhoLeaveOrAreLost) {
  opts.min_group_size = 2;
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(8), own(), now);
  (void)search.on_join(seeker(9), own(), now);
  search.on_leave(peer(8).id);
  EXPECT_EQ(search.followers(), 1u);
  (void)search.on_lost(peer(9).id, now);
  EXPECT_EQ(search.followers(), 0u);
  pass(opts.min_matchmaking_time);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 0u);
}

TEST_F(GroupSearch, TheOrderOfTheMembersIsRandomButSeeded) {
  auto order = [this](std::uint64_t seed) {
    opts.target_group_size = 6;
    group_search search{seeker(5), opts, now.steady + patience, random_source{seed}};
    (void)search.start(now);
    std::vector<unsigned> out;
    for (unsigned i = 6; i < 11; ++i)
      for (const auto& begun : all<group_search::begin>(search.on_join(seeker(i), own(), now).then))
        for (const auto& follower : begun.followers)
          out.push_back(number_of(follower.record));
    return out;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_THAT(order(1), testing::UnorderedElementsAre(6, 7, 8, 9, 10));
  bool differs = false;
  for (std::uint64_t seed = 2; seed < 10; ++seed)
    differs = differs || order(seed) != order(1);
  EXPECT_TRUE(differs);
}

// -- following (§3.3) ---------------------------------------------------------------------------

TEST_F(GroupSearch, TheLeadersWordEndsTheSearch) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  EXPECT_FALSE(search.on_begin(peer(2).id));
  EXPECT_TRUE(search.on_begin(peer(1).id));
  EXPECT_TRUE(search.done());
  EXPECT_FALSE(search.on_begin(peer(1).id));
}

TEST_F(GroupSearch, TheBeginningMayOvertakeTheAcceptance) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  EXPECT_TRUE(search.on_begin(peer(1).id));
  EXPECT_EQ(search.take_followers().size(), 1u);
  EXPECT_TRUE(search.on_answer(peer(1).id, ec::none, {}, now).empty());
}

TEST_F(GroupSearch, FollowsTheHintOfALeaderThatDisbands) {
  auto search = make();
  search.candidate(peer(3), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(3).id, ec::none, {}, now);
  EXPECT_EQ(asked(search.on_disband(peer(3).id, peer(1), now)), 1u);
  EXPECT_FALSE(search.leader());
}

TEST_F(GroupSearch, SearchesOnWhenALeaderDisbandsWithoutAHint) {
  auto search = make();
  search.candidate(peer(3), std::nullopt);
  search.candidate(peer(4), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(3).id, ec::none, {}, now);
  EXPECT_NE(asked(search.on_disband(peer(3).id, std::nullopt, now)), 0u);
}

TEST_F(GroupSearch, OnlyItsLeaderCanDisbandIt) {
  auto search = make();
  search.candidate(peer(3), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(3).id, ec::none, {}, now);
  EXPECT_TRUE(search.on_disband(peer(2).id, peer(1), now).empty());
  EXPECT_TRUE(search.leader());
}

TEST_F(GroupSearch, TheEndOfAGroupMayOvertakeTheAcceptance) {
  auto search = make();
  search.candidate(peer(3), std::nullopt);
  (void)search.start(now);
  EXPECT_TRUE(search.on_disband(peer(3).id, peer(1), now).empty());
  auto actions = search.on_answer(peer(3).id, ec::none, {}, now);
  EXPECT_FALSE(search.leader());
  EXPECT_EQ(count<group_search::leave>(actions), 1u);
  EXPECT_EQ(asked(actions), 1u);
}

TEST_F(GroupSearch, SearchesOnWhenItsLeaderIsLost) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  search.candidate(peer(2), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  EXPECT_EQ(asked(search.on_lost(peer(1).id, now)), 2u);
}

TEST_F(GroupSearch, GivesUpALeaderWhoseVerdictIsOverdue) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  pass(opts.min_matchmaking_time + opts.request_timeout - 1ms);
  EXPECT_EQ(count<group_search::leave>(search.on_time(now)), 0u);
  pass(1ms);
  auto actions = search.on_time(now);
  EXPECT_EQ(count<group_search::leave>(actions), 1u);
  EXPECT_EQ(count<group_search::declare>(actions), 1u);
  EXPECT_EQ(asked(actions), 0u) << "a silent leader is not asked again at once";
}

TEST_F(GroupSearch, AClientWaitsForALeaderThatBeganLater) {
  auto search = make(true);
  (void)search.start(now);
  pass(opts.min_matchmaking_time - 100ms);
  search.candidate(peer(1), own());
  ASSERT_EQ(asked(search.on_time(now)), 1u);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  pass(opts.min_matchmaking_time);
  EXPECT_TRUE(search.on_time(now).empty());
  EXPECT_TRUE(search.on_begin(peer(1).id));
}

// -- the end (§3.3, reasons) --------------------------------------------------------------------

TEST_F(GroupSearch, CancelLeavesDisbandsWithdrawsAndReports) {
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  auto actions = search.cancel({ec::cancelled, {}});
  EXPECT_EQ(count<group_search::disband>(actions), 1u);
  EXPECT_EQ(count<group_search::withdraw>(actions), 1u);
  auto failed = all<group_search::failed>(actions);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].why.code, ec::cancelled);
  EXPECT_TRUE(search.cancel({ec::cancelled, {}}).empty());
}

TEST_F(GroupSearch, AFollowerThatCancelsLeavesItsLeader) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  EXPECT_EQ(count<group_search::leave>(search.cancel({ec::cancelled, {}})), 1u);
}

TEST_F(GroupSearch, ALeaderBeginsWithWhomItHasAtItsDeadline) {
  patience = 1s;
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  pass(1s);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1u);
}

class GroupSearchReasons : public GroupSearch {
protected:
  /// Searches until the deadline while every question gets `code`.
  failure end_with(ec code) {
    auto search = make();
    search.candidate(peer(1), std::nullopt);
    return run(search, search.start(now), code);
  }
  failure run(group_search& search, group_search::actions actions, ec code) {
    auto latest = now.steady + patience + 1s;
    while (now.steady < latest) {
      for (const auto& failed : all<group_search::failed>(actions))
        return failed.why;
      if (auto who = asked(actions); who != 0) {
        actions = search.on_answer(peer(who).id, code, {}, now);
        continue;
      }
      pass(20ms);
      actions = search.on_time(now);
    }
    return {ec::internal, "it never ended"};
  }
};

TEST_F(GroupSearchReasons, NobodyDeclared) {
  auto search = make();
  EXPECT_EQ(run(search, search.start(now), ec::none).code, ec::nobody_declared);
}

TEST_F(GroupSearchReasons, WhatEverybodyAnsweredIsTheReason) {
  for (auto code : {ec::schema_mismatch, ec::epoch_mismatch, ec::unreachable, ec::timeout})
    EXPECT_EQ(end_with(code).code, code);
}

TEST_F(GroupSearchReasons, WhatAPeerSaidBeforeItSearchedIsNoReason) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  ASSERT_EQ(asked(search.start(now)), 1u);
  auto actions = search.on_answer(peer(1).id, ec::not_looking, {}, now);
  EXPECT_EQ(run(search, actions, ec::schema_mismatch).code, ec::schema_mismatch);
}

TEST_F(GroupSearchReasons, TooFewWereLooking) {
  for (auto code : {ec::not_looking, ec::group_full, ec::bad_expiration})
    EXPECT_EQ(end_with(code).code, ec::too_few);
}

TEST_F(GroupSearchReasons, TheDetailIsASentenceWithNumbers) {
  patience = 30s;
  auto search = make();
  for (unsigned i : {1U, 2U, 3U})
    search.candidate(peer(i), std::nullopt);
  auto actions = search.start(now);
  failure why;
  while (why.code == ec::none) {
    if (auto who = asked(actions); who != 0) {
      actions =
        search.on_answer(peer(who).id, who == 3 ? ec::unreachable : ec::schema_mismatch, {}, now);
      continue;
    }
    pass(20ms);
    actions = search.on_time(now);
    for (const auto& failed : all<group_search::failed>(actions))
      why = failed.why;
  }
  EXPECT_EQ(why.code, ec::too_few);
  EXPECT_THAT(why.detail,
              testing::StartsWith("could not find a group in 30.0 s: 3 candidates seen, "
                                  "1 unreachable, 2 refused (schema_mismatch); "));
}

TEST_F(GroupSearchReasons, APeerThatRefusesAgainAndAgainCountsOnce) {
  EXPECT_THAT(end_with(ec::group_full).detail,
              testing::HasSubstr("1 candidate seen, 1 refused (group_full)"));
}

TEST_F(GroupSearchReasons, EveryReasonSaysWhatToDo) {
  for (auto code : {ec::schema_mismatch, ec::epoch_mismatch, ec::wrong_group_key, ec::clock_skew,
                    ec::unreachable}) {
    auto why = end_with(code);
    EXPECT_EQ(why.code, code);
    EXPECT_THAT(why.detail, testing::MatchesRegex(".*; .+")) << to_string(code);
  }
}

TEST_F(GroupSearchReasons, WhomWeTurnedAwayIsAReason) {
  for (auto code : {ec::schema_mismatch, ec::epoch_mismatch, ec::wrong_group_key, ec::clock_skew}) {
    auto search = make();
    auto actions = search.start(now);
    search.turned_away(peer(9).id, code);
    auto why = run(search, actions, ec::none);
    EXPECT_EQ(why.code, code);
    EXPECT_THAT(why.detail, testing::HasSubstr("0 candidates seen, 1 turned away"));
  }
}

TEST_F(GroupSearchReasons, AStepOnTheWayToAGroupIsNoReason) {
  auto search = make();
  auto actions = search.start(now);
  for (auto code : {ec::not_a_leader, ec::duplicate_peer, ec::bad_expiration, ec::group_full})
    search.turned_away(peer(9).id, code);
  EXPECT_EQ(run(search, actions, ec::none).code, ec::nobody_declared);
}

TEST_F(GroupSearchReasons, ItSaysHowManyWereTogether) {
  opts.min_group_size = 3;
  auto search = make();
  (void)search.start(now);
  (void)search.on_join(seeker(9), own(), now);
  auto why = run(search, {}, ec::none);
  EXPECT_EQ(why.code, ec::too_few);
  EXPECT_THAT(why.detail, testing::HasSubstr("at most 2 of 3 together"));
}

TEST_F(GroupSearchReasons, WhoeverTookUsInAndNeverBeganIsNamed) {
  patience = 4s;
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  (void)search.start(now);
  (void)search.on_answer(peer(1).id, ec::none, {}, now);
  auto why = run(search, {}, ec::none);
  EXPECT_THAT(why.detail, testing::HasSubstr("1 took us in but never began"));
}

// -- clocks, moves between buckets, loneliness ---------------------------------------------------

TEST_F(GroupSearch, RefusesWhoseClockIsBehind) {
  auto search = make();
  (void)search.start(now);
  auto late = now.swarm - 3s - opts.request_timeout;
  auto answer = search.on_join(seeker(9), late - 1ns, now);
  EXPECT_EQ(answer.code, ec::clock_skew);
  EXPECT_EQ(asked(answer.then), 0u);
  EXPECT_EQ(search.on_join(seeker(9), late, now).code, ec::bad_expiration);
}

TEST_F(GroupSearch, AsksAgainWhoMovedIntoItsBucket) {
  auto search = make();
  search.candidate(peer(1), std::nullopt);
  ASSERT_EQ(asked(search.start(now)), 1u);
  (void)search.on_answer(peer(1).id, ec::wrong_group_key, {}, now);
  search.candidate(peer(1), at(400ms));
  EXPECT_EQ(asked(search.on_time(now)), 1u);
  (void)search.on_answer(peer(1).id, ec::schema_mismatch, {}, now);
  search.candidate(peer(1), at(500ms));
  EXPECT_EQ(asked(search.on_time(now)), 0u) << "its vector stays another";
}

TEST_F(GroupSearch, GivesUpEarlyWhenAloneOnlyIfItShould) {
  for (bool early : {false, true}) {
    opts.alone_after = early ? milliseconds{2'000} : milliseconds{0};
    auto search = make();
    (void)search.start(now);
    pass(2s - 1ms);
    EXPECT_EQ(count<group_search::failed>(search.on_time(now)), 0u);
    pass(1ms);
    auto failed = all<group_search::failed>(search.on_time(now));
    ASSERT_EQ(failed.size(), early ? 1u : 0u);
    for (const auto& end : failed)
      EXPECT_EQ(end.why.code, ec::nobody_declared);
  }
}

TEST_F(GroupSearch, WhoeverHasSeenSomebodyIsNotAlone) {
  opts.alone_after = 2s;
  auto known = make();
  known.candidate(peer(1), std::nullopt);
  (void)known.start(now);
  auto joined = make();
  (void)joined.start(now);
  (void)joined.on_join(seeker(9), own(), now);
  auto refuses = make();
  (void)refuses.start(now);
  refuses.turned_away(peer(9).id, ec::schema_mismatch);
  pass(3s);
  EXPECT_FALSE(known.done());
  for (auto* search : {&known, &joined, &refuses})
    EXPECT_EQ(count<group_search::failed>(search->on_time(now)), 0u);
}

} // namespace
} // namespace waggle
