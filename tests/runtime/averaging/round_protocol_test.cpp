#include "runtime/averaging/round_protocol.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

using protocol = round_protocol;
const steady_time t0{};

template <class Action>
const Action* find(const protocol::actions& actions) {
  for (const auto& a : actions)
    if (const auto* found = std::get_if<Action>(&a))
      return found;
  return nullptr;
}

protocol member(std::size_t self, std::size_t members = 4) {
  return {plan_for(members), self, {1, milliseconds{2'000}}};
}

TEST(RoundProtocol, AnyTwoQuorumsShareAMember) {
  for (std::size_t n = 1; n <= 8; ++n)
    for (std::uint64_t a = 1; a < (1U << n); ++a)
      for (std::uint64_t b = 1; b < (1U << n); ++b)
        if (is_quorum(member_set{a}, n) && is_quorum(member_set{b}, n)) {
          ASSERT_NE(a & b, 0U) << n << " members: " << a << " and " << b;
        }
}

TEST(RoundProtocol, TheLeaderCommitsWhenEveryParticipantHasPrepared) {
  auto leader = member(0);
  EXPECT_EQ(find<protocol::commit>(leader.on_result_complete(0)), nullptr);
  EXPECT_TRUE(leader.on_prepared(1, 0).empty());
  EXPECT_TRUE(leader.on_prepared(1, 0).empty()) << "a word said twice counts once";
  EXPECT_TRUE(leader.on_prepared(2, 0).empty());
  auto out = leader.on_prepared(3, 0);
  ASSERT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_EQ(find<protocol::send_commit>(out)->to, members_of({1, 2, 3}));
  EXPECT_TRUE(leader.committed());
}

TEST(RoundProtocol, AMemberThatHeardFromAllCommitsWithoutTheLeadersWord) {
  auto m = member(2);
  for (std::size_t other : {0, 1, 3})
    EXPECT_TRUE(m.on_prepared(other, 0).empty()) << "it does not hold the result itself";
  auto out = m.on_result_complete(0);
  EXPECT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_EQ(find<protocol::send_commit>(out), nullptr) << "that is the leader's";
}

TEST(RoundProtocol, ALeaderThatHasPreparedAsksBeforeItChangesTheContributors) {
  auto leader = member(0);
  (void)leader.on_result_complete(0);
  (void)leader.on_prepared(1, 0);
  // Member 2 may have heard from all, member 3 included, and applied the result.
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  ASSERT_NE(find<protocol::send_takeover>(out), nullptr);
  EXPECT_EQ(find<protocol::send_takeover>(out)->to, members_of({1, 2}));
  auto number = find<protocol::send_takeover>(out)->number;
  (void)leader.on_standing(1, {number, true, first_view(plan_for(4)), true, false});
  out = leader.on_standing(2, {number, true, first_view(plan_for(4)), true, false});
  ASSERT_NE(find<protocol::enter_view>(out), nullptr);
  EXPECT_EQ(find<protocol::enter_view>(out)->view.contributor_set(), members_of({0, 1, 2, 3}));
}

TEST(RoundProtocol, WordOfAViewMayComeBeforeTheView) {
  auto m = member(2);
  (void)m.on_result_complete(0);
  round_view next{4, 15, 7, true};
  EXPECT_TRUE(m.on_prepared(1, 4).empty());
  EXPECT_TRUE(m.on_prepared(0, 4).empty());
  EXPECT_NE(find<protocol::commit>(m.on_propose(0, next)), nullptr);
}

TEST(RoundProtocol, AMemberThatHoldsTheResultTellsEverybodyOnce) {
  auto m = member(2);
  auto out = m.on_result_complete(0);
  ASSERT_NE(find<protocol::send_prepared>(out), nullptr);
  EXPECT_EQ(find<protocol::send_prepared>(out)->to, members_of({0, 1, 3}));
  EXPECT_TRUE(m.on_result_complete(0).empty());
}

TEST(RoundProtocol, ALostMemberIsLeftOutOfTheNextView) {
  auto leader = member(0);
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  const auto* view = find<protocol::enter_view>(out);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->view.contributor_set(), members_of({0, 1, 2}));
  EXPECT_EQ(view->view.participant_set(), members_of({0, 1, 2}));
  EXPECT_EQ(view->view.number % 4, 0u);
  EXPECT_EQ(leader.lost().at(3), ec::peer_lost);
}

TEST(RoundProtocol, AMemberLostAfterTheOthersPreparedStaysAContributor) {
  auto leader = member(0);
  (void)leader.on_result_complete(0);
  (void)leader.on_prepared(1, 0);
  (void)leader.on_prepared(2, 0);
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  const auto* view = find<protocol::enter_view>(out);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->view.contributor_set(), members_of({0, 1, 2, 3}));
  EXPECT_EQ(view->view.participant_set(), members_of({0, 1, 2}));
}

TEST(RoundProtocol, LosingTheMajorityFailsTheRound) {
  auto leader = member(0);
  (void)leader.on_suspicion(3, ec::peer_lost, t0);
  auto two = leader.on_suspicion(2, ec::peer_lost, t0);
  EXPECT_NE(find<protocol::enter_view>(two), nullptr) << "half with member 0 decides";
  auto out = leader.on_suspicion(1, ec::stalled, t0);
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::lost_quorum);
  EXPECT_NE(find<protocol::send_abort>(out), nullptr);
}

TEST(RoundProtocol, TooFewContributorsFailTheRound) {
  protocol leader{plan_for(3), 0, {3, milliseconds{2'000}}};
  auto out = leader.on_suspicion(2, ec::peer_lost, t0);
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::too_few_contributors);
}

TEST(RoundProtocol, TheLowestMemberThatIsNotLostTakesOver) {
  auto next = member(1);
  auto out = next.on_suspicion(0, ec::peer_lost, t0);
  ASSERT_NE(find<protocol::send_takeover>(out), nullptr);
  EXPECT_EQ(find<protocol::send_takeover>(out)->number, 1u);
  EXPECT_EQ(next.wake_at(), t0 + 2s);
  auto third = member(2);
  EXPECT_EQ(find<protocol::send_takeover>(third.on_suspicion(0, ec::peer_lost, t0)), nullptr);
}

TEST(RoundProtocol, AMemberThatPromisedAHigherNumberPreparesNoLowerView) {
  auto m = member(2);
  auto out = m.on_takeover(1, 1);
  ASSERT_NE(find<protocol::send_standing>(out), nullptr);
  EXPECT_EQ(find<protocol::send_standing>(out)->standing.promised, 1u);
  EXPECT_TRUE(m.on_result_complete(0).empty());
}

TEST(RoundProtocol, ATakeoverAdoptsWhatMayHaveBeenCommitted) {
  auto next = member(1);
  (void)next.on_result_complete(0);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  auto everybody = first_view(plan_for(4));
  (void)next.on_standing(2, {1, true, everybody, true, false});
  auto out = next.on_standing(3, {1, true, everybody, true, false});
  const auto* view = find<protocol::enter_view>(out);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->view.contributors, everybody.contributors);
  EXPECT_TRUE(view->view.adopted);
}

TEST(RoundProtocol, ATakeoverIsFreeWhenAParticipantHadNotPrepared) {
  auto next = member(1);
  (void)next.on_result_complete(0);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  auto everybody = first_view(plan_for(4));
  (void)next.on_standing(2, {1, true, everybody, true, false});
  auto out = next.on_standing(3, {1, true, everybody, false, false});
  const auto* view = find<protocol::enter_view>(out);
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->view.contributor_set(), members_of({1, 2, 3}));
}

TEST(RoundProtocol, ATakeoverPassesOnADecision) {
  auto next = member(1);
  (void)next.on_result_complete(0);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  auto everybody = first_view(plan_for(4));
  (void)next.on_standing(2, {1, true, everybody, true, true});
  auto out = next.on_standing(3, {1, true, everybody, true, false});
  EXPECT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_NE(find<protocol::send_commit>(out), nullptr);
}

TEST(RoundProtocol, ATakeoverWithoutAnswersEndsAtItsDeadline) {
  auto next = member(1);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  EXPECT_TRUE(next.on_time(t0 + 1'999ms).empty());
  auto out = next.on_time(t0 + 2s);
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::lost_quorum);
}

TEST(RoundProtocol, ALeaderThatSleptThroughATakeoverIsToldSo) {
  auto m = member(2);
  (void)m.on_takeover(1, 9);
  auto out = m.on_propose(0, {4, 7, 7, false});
  ASSERT_NE(find<protocol::send_standing>(out), nullptr);
  EXPECT_EQ(find<protocol::send_standing>(out)->to, 0u);
  auto leader = member(0);
  (void)leader.on_suspicion(3, ec::peer_lost, t0);
  EXPECT_EQ(leader.coordinator(), 0u);
  (void)leader.on_standing(2, {9, true, first_view(plan_for(4)), false, false});
  EXPECT_EQ(leader.coordinator(), 1u);
  auto again = leader.on_suspicion(1, ec::stalled, t0);
  ASSERT_NE(find<protocol::send_takeover>(again), nullptr);
  EXPECT_GT(find<protocol::send_takeover>(again)->number, 9u);
}

TEST(RoundProtocol, ViewsThatMakeNoSenseAreNotEntered) {
  auto m = member(3);
  EXPECT_TRUE(m.on_propose(1, {4, 15, 15, false}).empty()) << "not the leader of view 4";
  EXPECT_TRUE(m.on_propose(0, {0, 15, 15, false}).empty()) << "not newer";
  EXPECT_TRUE(m.on_propose(0, {4, 0, 15, false}).empty()) << "no contributors";
  EXPECT_TRUE(m.on_propose(0, {4, 31, 15, false}).empty()) << "a contributor that is no member";
  EXPECT_TRUE(m.on_propose(0, {4, 15, 31, false}).empty()) << "a participant that is no member";
  EXPECT_TRUE(m.on_propose(0, {4, 8, 8, false}).empty()) << "no quorum";
  EXPECT_TRUE(m.on_propose(9, {9, 15, 15, false}).empty()) << "from nobody";
  EXPECT_TRUE(m.on_propose(0, {0xfffffffcU, 15, 15, false}).empty())
    << "numbers must not wrap around";
  EXPECT_TRUE(m.on_takeover(3 - 1, 0xfffffffeU).empty());
  EXPECT_EQ(m.view().number, 0u);
  EXPECT_FALSE(m.ended());
}

TEST(RoundProtocol, AMemberLeftOutOfAViewEnds) {
  auto m = member(3);
  auto out = m.on_propose(0, {4, 7, 7, false});
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::excluded);
}

TEST(RoundProtocol, AFailureIsFinal) {
  auto m = member(1);
  auto out = m.give_up({ec::timeout, "deadline"});
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::send_suspect>(out)->to, 0u);
  EXPECT_TRUE(m.on_commit(0, first_view(plan_for(4))).empty());
  EXPECT_TRUE(m.on_result_complete(0).empty());
  EXPECT_TRUE(m.give_up({ec::timeout, {}}).empty());
  EXPECT_TRUE(m.on_propose(0, {4, 15, 15, false}).empty());
  EXPECT_FALSE(m.committed());
  auto asked = m.on_takeover(2, 2);
  ASSERT_NE(find<protocol::send_standing>(asked), nullptr);
  EXPECT_FALSE(find<protocol::send_standing>(asked)->standing.knows_view);
}

TEST(RoundProtocol, ACommitOfAResultThatIsNotHereIsAFailure) {
  auto m = member(1);
  auto out = m.on_commit(0, first_view(plan_for(4)));
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::excluded);
}

TEST(RoundProtocol, OnlyTheCoordinatorMayAbort) {
  auto m = member(2);
  EXPECT_TRUE(m.on_abort(1, ec::cancelled).empty());
  auto out = m.on_abort(0, ec::cancelled);
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::cancelled);
}

TEST(RoundProtocol, ARoundOfOneCommitsAtOnce) {
  auto alone = member(0, 1);
  EXPECT_NE(find<protocol::commit>(alone.on_result_complete(0)), nullptr);
}

TEST(RoundProtocol, AuxiliariesDoNotContribute) {
  auto plan = plan_for(3);
  plan.members[2].mode = member_mode::auxiliary;
  protocol leader{plan, 0, {}};
  EXPECT_EQ(leader.view().contributor_set(), members_of({0, 1}));
  EXPECT_EQ(leader.view().participant_set(), members_of({0, 1, 2}));
  EXPECT_TRUE((protocol{plan, 1, {}}.on_propose(0, {3, 7, 7, false}).empty()))
    << "nor may a view say so";
}

} // namespace
} // namespace waggle
