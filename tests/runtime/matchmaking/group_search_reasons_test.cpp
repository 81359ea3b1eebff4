// How a search ends without a group, and the reason that it reports.

#include <gmock/gmock.h>

#include "runtime/matchmaking/group_search.hpp"
#include "tests/runtime/matchmaking/search_fixture.hpp"

namespace waggle {
namespace {

// -- the end -------------------------------------------------------------------------------------

TEST_F(GroupSearch, CancelLeavesDisbandsWithdrawsAndReports) {
  auto search = leading({9});
  auto actions = search.cancel({ec::cancelled, {}});
  EXPECT_EQ(count<group_search::disband>(actions), 1u);
  EXPECT_EQ(count<group_search::withdraw>(actions), 1u);
  EXPECT_EQ(the<group_search::failed>(actions).why.code, ec::cancelled);
  EXPECT_TRUE(search.cancel({ec::cancelled, {}}).empty());
}

TEST_F(GroupSearch, AFollowerThatCancelsLeavesItsLeader) {
  EXPECT_EQ(count<group_search::leave>(following(1).cancel({ec::cancelled, {}})), 1u);
}

TEST_F(GroupSearch, ALeaderBeginsWithTheMembersItHasAtItsDeadline) {
  patience = 1s;
  auto search = leading({9});
  pass(1s);
  EXPECT_EQ(count<group_search::begin>(search.on_time(now)), 1u);
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

TEST_F(GroupSearch, ASearchThatHasSeenAPeerIsNotAlone) {
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

// -- reasons -------------------------------------------------------------------------------------

/// The other peers answer as the test specifies; the reason is the last action of the search.
class GroupSearchReasons : public GroupSearch {
protected:
  failure reason_of(group_search& search, const group_search::actions& actions) {
    return others.reason_of(search, actions, now);
  }
  /// Searches while peer 1 answers every request with `code`.
  failure end_with(ec code) {
    others.say(1, code);
    auto search = make();
    search.candidate(peer(1), std::nullopt);
    return reason_of(search, search.start(now));
  }

  scripted_peers others;
};

TEST_F(GroupSearchReasons, NobodyDeclared) {
  auto search = make();
  EXPECT_EQ(reason_of(search, search.start(now)).code, ec::nobody_declared);
}

TEST_F(GroupSearchReasons, TheAnswerOfAllPeersIsTheReason) {
  for (auto code : {ec::schema_mismatch, ec::epoch_mismatch, ec::unreachable, ec::timeout})
    EXPECT_EQ(end_with(code).code, code);
}

TEST_F(GroupSearchReasons, TheAnswerOfAPeerBeforeItSearchedIsNoReason) {
  auto search = asking(1u, {{1, {}}});
  auto actions = search.on_answer(peer(1).id, ec::not_looking, {}, now);
  others.say(1, ec::schema_mismatch);
  EXPECT_EQ(reason_of(search, actions).code, ec::schema_mismatch);
}

TEST_F(GroupSearchReasons, TooFewWereLooking) {
  for (auto code : {ec::not_looking, ec::group_full, ec::bad_expiration})
    EXPECT_EQ(end_with(code).code, ec::too_few);
}

TEST_F(GroupSearchReasons, TheDetailIsASentenceWithNumbers) {
  patience = 30s;
  others.say(1, ec::schema_mismatch);
  others.say(2, ec::schema_mismatch);
  others.say(3, ec::unreachable);
  auto search = make();
  for (unsigned i : {1U, 2U, 3U})
    search.candidate(peer(i), std::nullopt);
  auto why = reason_of(search, search.start(now));
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

TEST_F(GroupSearchReasons, APeerThatWeTurnedAwayIsAReason) {
  for (auto code : {ec::schema_mismatch, ec::epoch_mismatch, ec::wrong_group_key, ec::clock_skew}) {
    auto search = make();
    auto actions = search.start(now);
    search.turned_away(peer(9).id, code);
    auto why = reason_of(search, actions);
    EXPECT_EQ(why.code, code);
    EXPECT_THAT(why.detail, testing::HasSubstr("0 candidates seen, 1 turned away"));
  }
}

TEST_F(GroupSearchReasons, AStepOnTheWayToAGroupIsNoReason) {
  auto search = make();
  auto actions = search.start(now);
  for (auto code : {ec::not_a_leader, ec::duplicate_peer, ec::bad_expiration, ec::group_full})
    search.turned_away(peer(9).id, code);
  EXPECT_EQ(reason_of(search, actions).code, ec::nobody_declared);
}

TEST_F(GroupSearchReasons, TheDetailHasTheSizeOfTheLargestGroup) {
  opts.min_group_size = 3;
  auto search = leading({9});
  auto why = reason_of(search, {});
  EXPECT_EQ(why.code, ec::too_few);
  EXPECT_THAT(why.detail, testing::HasSubstr("at most 2 of 3 together"));
}

TEST_F(GroupSearchReasons, APeerThatTookUsInAndNeverBeganIsNamed) {
  patience = 4s;
  auto search = following(1);
  EXPECT_THAT(reason_of(search, {}).detail, testing::HasSubstr("1 took us in but never began"));
}

} // namespace
} // namespace waggle
