// A search that others ask: which peers it accepts, and when its group begins.

#include <gmock/gmock.h>

#include "runtime/matchmaking/group_search.hpp"
#include "tests/runtime/matchmaking/search_fixture.hpp"

namespace waggle {
namespace {

// -- the checks on a request, in their order -----------------------------------------------------

TEST_F(GroupSearch, RefusesToBeJoinedBeforeItSearchesAndAfterwards) {
  auto search = make();
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::not_looking);
  (void)search.start(now);
  (void)search.cancel({ec::cancelled, {}});
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::not_looking);
}

TEST_F(GroupSearch, ClientAcceptsNoPeer) {
  EXPECT_EQ(started(true).on_join(seeker(9), own() + 1h, now).code, ec::protocol_violation);
}

TEST_F(GroupSearch, RefusesAPeerThatExpiresBeforeItAndAsksThatPeer) {
  auto search = started();
  auto answer = search.on_join(seeker(1), at(300ms), now);
  EXPECT_EQ(answer.code, ec::bad_expiration);
  EXPECT_EQ(asked(answer.then), 1u);
}

TEST_F(GroupSearch, ExpirationIsCheckedBeforeLeadership) {
  EXPECT_EQ(following(1).on_join(seeker(2), at(300ms), now).code, ec::bad_expiration);
}

TEST_F(GroupSearch, EqualExpirationsAreDecidedByPeerId) {
  auto search = started();
  EXPECT_EQ(search.on_join(seeker(4), own(), now).code, ec::bad_expiration);
  EXPECT_EQ(search.on_join(seeker(6), own(), now).code, ec::none);
}

TEST_F(GroupSearch, FollowerNamesItsLeaderToAPeerThatAsks) {
  auto search = following(1);
  auto answer = search.on_join(seeker(9), own(), now);
  EXPECT_EQ(answer.code, ec::not_a_leader);
  ASSERT_TRUE(answer.suggested);
  EXPECT_EQ(number_of(*answer.suggested), 1u);
}

TEST_F(GroupSearch, RefusesADuplicateAndItself) {
  auto search = started();
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::none);
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::duplicate_peer);
  EXPECT_EQ(search.on_join(seeker(5), own(), now).code, ec::duplicate_peer);
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, ACompleteGroupLooksForNoOtherPeer) {
  opts.target_group_size = 2;
  auto search = started();
  EXPECT_EQ(search.on_join(seeker(8), own(), now).code, ec::none);
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::not_looking);
}

TEST_F(GroupSearch, AcceptsAClientWhateverItsExpiration) {
  EXPECT_EQ(started().on_join(seeker(1, true), at(1ms), now).code, ec::none);
}

TEST_F(GroupSearch, AnswersJoinsWhileItsOwnRequestIsPending) {
  auto search = asking(1u, {{1, at(300ms)}});
  EXPECT_EQ(search.on_join(seeker(9), own(), now).code, ec::none);
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, OfTwoPeersThatAskEachOtherTheSmallerAccepts) {
  // 5 asks 7 without knowing its expiration while 7 asks 5: 5 ranks first.
  auto search = asking(7u, {{7, {}}});
  EXPECT_EQ(search.on_join(seeker(7), own(), now).code, ec::none);
  (void)search.on_answer(peer(7).id, ec::bad_expiration, {}, now);
  EXPECT_FALSE(search.leader());
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, RefusesAPeerWhoseClockIsBehind) {
  auto search = started();
  auto late = now.swarm - 3s - opts.request_timeout;
  auto answer = search.on_join(seeker(9), late - 1ns, now);
  EXPECT_EQ(answer.code, ec::clock_skew);
  EXPECT_EQ(asked(answer.then), 0u);
  EXPECT_EQ(search.on_join(seeker(9), late, now).code, ec::bad_expiration);
}

// -- leading -------------------------------------------------------------------------------------

TEST_F(GroupSearch, BeginsAtOnceAtTheTargetSize) {
  opts.target_group_size = 3;
  auto search = started();
  EXPECT_TRUE(search.on_join(seeker(8), own(), now).then.empty());
  auto answer = search.on_join(seeker(9), own(), now);
  EXPECT_EQ(answer.code, ec::none);
  EXPECT_EQ(the<group_search::begin>(answer.then).followers.size(), 2u);
  EXPECT_EQ(count<group_search::withdraw>(answer.then), 1u);
  EXPECT_TRUE(search.done());
}

TEST_F(GroupSearch, BeginsAtOnceWithTheExpectedPeers) {
  opts.expected_peers = 2;
  EXPECT_EQ(count<group_search::begin>(started().on_join(seeker(9), own(), now).then), 1u);
}

TEST_F(GroupSearch, ExpectedPeersDoNotOverruleTheMinimum) {
  opts.expected_peers = 2;
  opts.min_group_size = 3;
  auto search = started();
  EXPECT_EQ(count<group_search::begin>(search.on_join(seeker(9), own(), now).then), 0u);
  EXPECT_EQ(count<group_search::begin>(search.on_join(seeker(8), own(), now).then), 1u);
}

TEST_F(GroupSearch, ASmallerGroupBeginsWhenTheLeaderExpires) {
  auto search = leading({9});
  pass(opts.min_matchmaking_time - 1ms);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 0u);
  pass(1ms);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, DisbandsWithoutAHintWhenItExpiresWithTooFew) {
  opts.min_group_size = 3;
  auto search = leading({9});
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
  EXPECT_EQ(count<group_search::begin>(make().start(now)), 1u);
}

TEST_F(GroupSearch, MinGroupSizeOneBeginsAloneAtTheFirstExpiration) {
  opts.min_group_size = 1;
  auto search = make();
  EXPECT_EQ(count<group_search::begin>(search.start(now)), 0u);
  pass(opts.min_matchmaking_time);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1u);
}

TEST_F(GroupSearch, ALeaderKeepsItsFollowersWhileItAsksABetterOne) {
  auto search = leading({9});
  search.candidate(peer(1), at(300ms));
  auto actions = search.on_time(now);
  EXPECT_EQ(asked(actions), 1u);
  EXPECT_EQ(count<group_search::disband>(actions), 0u);
  EXPECT_EQ(search.followers(), 1u);
}

TEST_F(GroupSearch, RedirectsItsFollowersToTheLeaderThatAcceptsIt) {
  auto search = leading({9});
  search.candidate(peer(1), at(300ms));
  (void)search.on_time(now);
  auto disbanded = all<group_search::disband>(search.on_answer(peer(1).id, ec::none, {}, now));
  ASSERT_EQ(disbanded.size(), 1u);
  EXPECT_EQ(disbanded[0].followers.size(), 1u);
  ASSERT_TRUE(disbanded[0].suggested);
  EXPECT_EQ(number_of(*disbanded[0].suggested), 1u);
  EXPECT_EQ(search.followers(), 0u);
}

/// A complete group, whose leader has asked peer 1 in the meantime.
struct CompleteGroup : GroupSearch {
  CompleteGroup() {
    opts.target_group_size = 2;
    search.emplace(make());
    search->candidate(peer(1), at(300ms));
    EXPECT_EQ(asked(search->start(now)), 1u);
    auto answer = search->on_join(seeker(9), own(), now);
    EXPECT_EQ(answer.code, ec::none);
    EXPECT_TRUE(answer.then.empty()) << "peer 1 may lead a group with us";
    EXPECT_EQ(search->on_join(seeker(8), own(), now).code, ec::group_full);
  }
  std::optional<group_search> search;
};

TEST_F(GroupSearch, ALargerCompleteGroupBeginsAlsoWhileItAsks) {
  opts.target_group_size = 3;
  auto search = make();
  search.candidate(peer(1), at(300ms));
  EXPECT_EQ(asked(search.start(now)), 1u);
  (void)search.on_join(seeker(8), own(), now);
  auto answer = search.on_join(seeker(9), own(), now);
  EXPECT_EQ(count<group_search::begin>(answer.then), 1u);
  EXPECT_EQ(number_of(the<group_search::leave>(answer.then).leader), 1u);
}

TEST_F(CompleteGroup, BeginsOnceThePeerThatWasAskedRefuses) {
  auto actions = search->on_answer(peer(1).id, ec::bad_expiration, {}, now);
  EXPECT_EQ(count<group_search::begin>(actions), 1u);
  EXPECT_EQ(count<group_search::ask>(actions), 0u);
  EXPECT_TRUE(search->done());
}

TEST_F(CompleteGroup, FollowsThePeerThatWasAskedIfItAccepts) {
  auto actions = search->on_answer(peer(1).id, ec::none, {}, now);
  EXPECT_EQ(count<group_search::begin>(actions), 0u);
  EXPECT_EQ(count<group_search::disband>(actions), 1u);
  ASSERT_TRUE(search->leader());
  EXPECT_EQ(number_of(*search->leader()), 1u);
}

TEST_F(CompleteGroup, AsksAnotherPeerThatIsKnownToRankBeforeIt) {
  search->candidate(peer(2), at(400ms));
  search->candidate(peer(3), std::nullopt); // it may rank before us
  auto actions = search->on_answer(peer(1).id, ec::bad_expiration, {}, now);
  ASSERT_EQ(count<group_search::ask>(actions), 1u);
  EXPECT_EQ(number_of(all<group_search::ask>(actions)[0].to), 2u);
  EXPECT_EQ(count<group_search::begin>(actions), 0u);
  actions = search->on_answer(peer(2).id, ec::group_full, {}, now);
  EXPECT_EQ(count<group_search::begin>(actions), 1u);
}

TEST_F(CompleteGroup, WaitsForTheAnswerForAShortTimeOnly) {
  pass(opts.answer_wait - 1ms);
  EXPECT_EQ(count<group_search::begin>(search->on_time(now)), 0u);
  pass(1ms);
  auto actions = search->on_time(now);
  EXPECT_EQ(count<group_search::begin>(actions), 1u);
  auto leaves = all<group_search::leave>(actions);
  ASSERT_EQ(leaves.size(), 1u) << "it withdraws its request";
  EXPECT_EQ(number_of(leaves[0].leader), 1u);
}

TEST_F(GroupSearch, DropsFollowersThatLeaveOrAreLost) {
  opts.min_group_size = 2;
  auto search = leading({8, 9});
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

} // namespace
} // namespace waggle
