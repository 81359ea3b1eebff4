#include "runtime/averaging/round_protocol.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/protocol_member.hpp"

namespace waggle {
namespace {

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
  EXPECT_EQ(find<protocol::commit>(leader.on_result_complete(0, right)), nullptr);
  EXPECT_TRUE(leader.on_prepared(1, 0, right).empty());
  EXPECT_TRUE(leader.on_prepared(1, 0, right).empty()) << "a repeated message counts once";
  EXPECT_TRUE(leader.on_prepared(2, 0, right).empty());
  auto out = leader.on_prepared(3, 0, right);
  ASSERT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_EQ(find<protocol::send_commit>(out)->to, members_of({1, 2, 3}));
  EXPECT_TRUE(leader.committed());
}

TEST(RoundProtocol, AMemberThatHasAllPreparedMessagesCommitsWithoutTheLeader) {
  auto m = member(2);
  for (std::size_t other : {0, 1, 3})
    EXPECT_TRUE(m.on_prepared(other, 0, right).empty()) << "it does not hold the result itself";
  auto out = m.on_result_complete(0, right);
  EXPECT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_EQ(find<protocol::send_commit>(out), nullptr) << "only the leader sends it";
}

TEST(RoundProtocol, ALeaderThatHasPreparedAsksBeforeItChangesTheContributors) {
  auto leader = member(0);
  (void)leader.on_result_complete(0, right);
  (void)leader.on_prepared(1, 0, right);
  // Member 2 may have received `prepared` from all, member 3 included, and applied the result.
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  EXPECT_EQ(the<protocol::send_takeover>(out).to, members_of({1, 2}));
  auto number = the<protocol::send_takeover>(out).number;
  (void)leader.on_promise(1, {number, true, holding(first_view(plan_for(4))), true, false});
  out = leader.on_promise(2, {number, true, holding(first_view(plan_for(4))), true, false});
  EXPECT_EQ(the<protocol::enter_view>(out).view.contributor_set(), members_of({0, 1, 2, 3}));
}

TEST(RoundProtocol, AMessageOfAViewMayArriveBeforeTheView) {
  auto m = member(2);
  (void)m.on_result_complete(0, right);
  round_view next{1, 15, 7, true, right};
  EXPECT_TRUE(m.on_prepared(1, 1, right).empty());
  EXPECT_TRUE(m.on_prepared(0, 1, right).empty());
  EXPECT_NE(find<protocol::commit>(m.on_propose(0, next)), nullptr);
}

TEST(RoundProtocol, AMemberThatHoldsTheResultNotifiesAllOnce) {
  auto m = member(2);
  EXPECT_EQ(the<protocol::send_prepared>(m.on_result_complete(0, right)).to, members_of({0, 1, 3}));
  EXPECT_TRUE(m.on_result_complete(0, right).empty());
}

TEST(RoundProtocol, ALostMemberIsLeftOutOfTheNextView) {
  auto leader = member(0);
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  const auto& view = the<protocol::enter_view>(out);
  EXPECT_EQ(view.view.contributor_set(), members_of({0, 1, 2}));
  EXPECT_EQ(view.view.participant_set(), members_of({0, 1, 2}));
  EXPECT_EQ(view.view.number, 1u) << "in its own term";
  EXPECT_FALSE(view.view.adopted);
  EXPECT_EQ(leader.lost().at(3), ec::peer_lost);
}

TEST(RoundProtocol, AMemberLostAfterTheOthersPreparedStaysAContributor) {
  auto leader = member(0);
  (void)leader.on_result_complete(0, right);
  (void)leader.on_prepared(1, 0, right);
  (void)leader.on_prepared(2, 0, right);
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  const auto& view = the<protocol::enter_view>(out);
  EXPECT_EQ(view.view.contributor_set(), members_of({0, 1, 2, 3}));
  EXPECT_EQ(view.view.participant_set(), members_of({0, 1, 2}));
  EXPECT_TRUE(view.view.adopted) << "member 3 may have received `prepared` from all";
}

TEST(RoundProtocol, LosingTheMajorityFailsTheRound) {
  auto leader = member(0);
  (void)leader.on_suspicion(3, ec::peer_lost, t0);
  auto two = leader.on_suspicion(2, ec::peer_lost, t0);
  EXPECT_NE(find<protocol::enter_view>(two), nullptr)
    << "half of the members with member 0 are a quorum";
  auto out = leader.on_suspicion(1, ec::stalled, t0);
  EXPECT_EQ(the<protocol::fail>(out).why.code, ec::lost_quorum);
  EXPECT_NE(find<protocol::send_abort>(out), nullptr);
}

TEST(RoundProtocol, TooFewContributorsFailTheRound) {
  protocol leader{plan_for(3), 0, {3, milliseconds{2'000}}};
  auto out = leader.on_suspicion(2, ec::peer_lost, t0);
  EXPECT_EQ(the<protocol::fail>(out).why.code, ec::too_few_contributors);
}

TEST(RoundProtocol, TheLowestMemberThatIsNotLostTakesOver) {
  auto next = member(1);
  EXPECT_EQ(the<protocol::send_takeover>(next.on_suspicion(0, ec::peer_lost, t0)).number, term(1));
  EXPECT_EQ(find<protocol::send_takeover>(member(2).on_suspicion(0, ec::peer_lost, t0)), nullptr);
}

TEST(RoundProtocol, AMemberThatPromisedAHigherNumberPreparesNoLowerView) {
  auto m = member(2);
  EXPECT_EQ(the<protocol::send_promise>(m.on_takeover(1, term(1))).promise.promised, term(1));
  EXPECT_TRUE(m.on_result_complete(0, right).empty());
}

TEST(RoundProtocol, ATakeoverAdoptsWhatMayHaveBeenCommitted) {
  auto next = member(1);
  (void)next.on_result_complete(0, right);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  auto everybody = first_view(plan_for(4));
  (void)next.on_promise(2, {term(1), true, holding(everybody), true, false});
  auto out = next.on_promise(3, {term(1), true, holding(everybody), true, false});
  const auto& view = the<protocol::enter_view>(out);
  EXPECT_EQ(view.view.contributors, everybody.contributors);
  EXPECT_TRUE(view.view.adopted);
}

TEST(RoundProtocol, ATakeoverIsFreeWhenAParticipantHadNotPrepared) {
  auto next = member(1);
  (void)next.on_result_complete(0, right);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  auto everybody = first_view(plan_for(4));
  (void)next.on_promise(2, {term(1), true, holding(everybody), true, false});
  auto out = next.on_promise(3, {term(1), true, everybody, false, false});
  const auto& view = the<protocol::enter_view>(out);
  EXPECT_EQ(view.view.contributor_set(), members_of({1, 2, 3}));
}

TEST(RoundProtocol, AMemberThatLacksTheAdoptedResultYieldsToOneThatHasIt) {
  auto next = member(1, 5);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  // The leader had left us out before we lost it.
  auto all = first_view(plan_for(5));
  takeover_promise holds{term(1), true, {1, all.contributors, 0b11101, true}, true, false};
  (void)next.on_promise(2, holds);
  (void)next.on_promise(3, holds);
  auto out = next.on_promise(4, holds);
  EXPECT_EQ(the<protocol::fail>(out).why.code, ec::excluded);
  EXPECT_EQ(find<protocol::send_abort>(out), nullptr) << "the others have all that they need";
  member_set told;
  for (const auto& action : out)
    if (const auto* word = std::get_if<protocol::send_suspect>(&action)) {
      EXPECT_EQ(word->member, 1U);
      told.insert(word->to);
    }
  EXPECT_TRUE(told.contains(members_of({2, 3, 4})));

  auto other = member(2, 5);
  (void)other.on_propose(0, holds.view);
  (void)other.on_result_complete(1, right);
  (void)other.on_takeover(1, term(1));
  (void)other.on_suspicion(0, ec::peer_lost, t0);
  out = other.on_suspect(1, 0, 1, ec::excluded, t0);
  EXPECT_NE(find<protocol::send_takeover>(out), nullptr) << "it is the lowest member left";
}

TEST(RoundProtocol, ATakeoverPassesOnADecision) {
  auto next = member(1);
  (void)next.on_result_complete(0, right);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  auto everybody = first_view(plan_for(4));
  (void)next.on_promise(2, {term(1), true, holding(everybody), true, true});
  auto out = next.on_promise(3, {term(1), true, holding(everybody), true, false});
  EXPECT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_NE(find<protocol::send_commit>(out), nullptr);
}

TEST(RoundProtocol, ATakeoverWithoutAnswersEndsAtItsDeadline) {
  auto next = member(1);
  (void)next.on_suspicion(0, ec::peer_lost, t0);
  EXPECT_TRUE(next.on_time(t0 + 1'999ms).empty());
  EXPECT_EQ(the<protocol::fail>(next.on_time(t0 + 2s)).why.code, ec::lost_quorum);
}

TEST(RoundProtocol, ALeaderThatMissedATakeoverIsNotified) {
  auto m = member(2);
  (void)m.on_takeover(1, term(5));
  EXPECT_EQ(the<protocol::send_promise>(m.on_propose(0, {1, 7, 7, false})).to, 0u);
  auto leader = member(0);
  (void)leader.on_suspicion(3, ec::peer_lost, t0);
  EXPECT_EQ(leader.coordinator(), 0u);
  (void)leader.on_promise(2, {term(5), true, first_view(plan_for(4)), false, false});
  EXPECT_EQ(leader.coordinator(), 1u);
  EXPECT_GT(the<protocol::send_takeover>(leader.on_suspicion(1, ec::stalled, t0)).number, term(5));
}

// Only member 2 has lost the leader. It expects a takeover by member 1, which sees no reason for
// one; member 1 must not count as lost for that.
TEST(RoundProtocol, ASuccessorThatDoesNotTakeOverIsAskedAllTheSame) {
  auto m = member(2);
  EXPECT_EQ(the<protocol::send_suspect>(m.on_suspicion(0, ec::peer_lost, t0)).to, 1U);
  EXPECT_TRUE(m.on_time(t0 + 1'999ms).empty());
  auto out = m.on_time(t0 + 2s);
  EXPECT_EQ(the<protocol::send_takeover>(out).to, members_of({1, 3}));
  auto everybody = first_view(plan_for(4));
  auto number = the<protocol::send_takeover>(out).number;
  (void)m.on_promise(1, {number, true, everybody, false, false});
  out = m.on_promise(3, {number, true, everybody, false, false});
  EXPECT_EQ(the<protocol::send_propose>(out).view.participant_set(), members_of({1, 2, 3}));
}

// The link between 0 and 2 breaks; 0 leads the others to a view without 2, which does not learn of
// it.
TEST(RoundProtocol, ATakeoverByOneThatWasLeftOutEndsWithIt) {
  auto m = member(2);
  (void)m.on_suspicion(0, ec::peer_lost, t0);
  (void)m.on_suspicion(1, ec::peer_lost, t0);
  round_view ahead{term(4), 11, 11, false, {}};
  auto out = m.on_promise(3, {term(4), true, ahead, false, false});
  EXPECT_EQ(the<protocol::fail>(out).why.code, ec::excluded);
}

// The same, but 1 has begun a later term since, and asks all members.
TEST(RoundProtocol, ATakeoverByOneThatMayBeTakenInAgainWaits) {
  auto m = member(2);
  (void)m.on_suspicion(0, ec::peer_lost, t0);
  (void)m.on_suspicion(1, ec::peer_lost, t0);
  round_view over{term(4), 11, 11, false, {}};
  EXPECT_TRUE(m.on_promise(3, {term(5), true, over, false, false}).empty());
  EXPECT_EQ(m.coordinator(), 1U);
  // It gives up and reports that.
  auto out = m.on_suspect(1, 0, 1, ec::excluded, t0);
  EXPECT_NE(find<protocol::send_takeover>(out), nullptr) << "no member is ahead any more";
}

// 0 and 1 have lost each other, and both reach 2. If each immediately began a term above the
// other's, none of their views would ever arrive in time.
TEST(RoundProtocol, AMemberThatIsBehindYieldsToATakeoverThatOthersReach) {
  auto old = member(0, 3);
  auto next = member(1, 3);
  auto third = member(2, 3);
  auto asked = find<protocol::send_takeover>(next.on_suspicion(0, ec::peer_lost, t0))->number;
  auto promise = find<protocol::send_promise>(third.on_takeover(1, asked))->promise;
  auto late = find<protocol::send_propose>(old.on_suspicion(1, ec::peer_lost, t0))->view;
  auto refusal = find<protocol::send_promise>(third.on_propose(0, late))->promise;
  EXPECT_TRUE(old.on_promise(2, refusal).empty());
  EXPECT_EQ(old.coordinator(), 1U);
  for (auto now = t0; now < t0 + 4s; now += 100ms)
    ASSERT_TRUE(old.on_time(now).empty());
  auto view = find<protocol::send_propose>(next.on_promise(2, promise))->view;
  EXPECT_NE(find<protocol::enter_view>(third.on_propose(1, view)), nullptr);
  // If it had died meanwhile, another member must go on.
  EXPECT_NE(find<protocol::send_takeover>(old.on_time(t0 + 4s)), nullptr);
}

// The two schedules below once ended with two results of one round.

// The link between 0 and 1 breaks; 1 notices first, takes over, and decides with 2. Then 0, which
// does not know of that, notices.
TEST(RoundProtocol, ALeaderWhoseTermIsOverCannotPassTheTermOfAnother) {
  auto old = member(0, 3);
  auto next = member(1, 3);
  auto third = member(2, 3);
  auto asked = find<protocol::send_takeover>(next.on_suspicion(0, ec::peer_lost, t0))->number;
  auto promise = find<protocol::send_promise>(third.on_takeover(1, asked))->promise;
  auto decided = find<protocol::send_propose>(next.on_promise(2, promise))->view;
  EXPECT_EQ(decided.contributor_set(), members_of({1, 2}));
  (void)third.on_propose(1, decided);
  (void)third.on_result_complete(decided.number, right);
  (void)next.on_prepared(2, decided.number, right);
  EXPECT_NE(find<protocol::commit>(next.on_result_complete(decided.number, right)), nullptr);
  auto late = find<protocol::send_propose>(old.on_suspicion(1, ec::peer_lost, t0))->view;
  auto out = third.on_propose(0, late);
  EXPECT_EQ(find<protocol::enter_view>(out), nullptr)
    << "otherwise it would decide with 0 that 0 and 2 contribute";
  auto told = old.on_promise(2, the<protocol::send_promise>(out).promise);
  ASSERT_NE(find<protocol::fail>(told), nullptr) << "the others went on without it";
  EXPECT_EQ(find<protocol::fail>(told)->why.code, ec::excluded);
}

// 4 receives `prepared` from all and applies the result; the others lose it before they receive
// that from it. Their leader keeps the contributors, but only 1 learns of that before the leader is
// lost, too.
TEST(RoundProtocol, ATakeoverKeepsWhatADroppedMemberMayHaveApplied) {
  std::vector<protocol> members;
  for (std::size_t i = 0; i < 5; ++i) {
    members.push_back(member(i, 5));
    (void)members[i].on_result_complete(0, right);
  }
  for (std::size_t to = 0; to < 5; ++to)
    for (std::size_t from = 0; from < 4; ++from)
      if (to != from)
        (void)members[to].on_prepared(from, 0, right);
  ASSERT_TRUE(members[4].committed());
  auto kept = find<protocol::send_propose>(members[0].on_suspicion(4, ec::peer_lost, t0))->view;
  EXPECT_EQ(kept.contributor_set(), members_of({0, 1, 2, 3, 4}));
  (void)members[1].on_suspicion(4, ec::peer_lost, t0);
  (void)members[1].on_propose(0, kept);
  auto asking = members[1].on_suspicion(0, ec::peer_lost, t0);
  const auto& asked = the<protocol::send_takeover>(asking);
  auto out = protocol::actions{};
  for (std::size_t i : {2, 3})
    out = members[1].on_promise(
      i, find<protocol::send_promise>(members[i].on_takeover(1, asked.number))->promise);
  (void)members[1].on_promise(4, {0, false, {}, false, false});
  const auto& view = the<protocol::enter_view>(out);
  EXPECT_EQ(view.view.contributor_set(), members_of({0, 1, 2, 3, 4}));
  EXPECT_EQ(view.view.participant_set(), members_of({1, 2, 3}));
}

TEST(RoundProtocol, AnAnswerToAnEarlierQuestionDoesNotCountAsTheAnswerToThisOne) {
  auto m = member(1, 5);
  (void)m.on_suspicion(0, ec::peer_lost, t0);
  (void)m.on_takeover(2, term(2)); // ahead of us; then it is lost as well
  auto asked = find<protocol::send_takeover>(m.on_suspicion(2, ec::peer_lost, t0))->number;
  auto everybody = first_view(plan_for(5));
  EXPECT_TRUE(m.on_promise(3, {term(1), true, everybody, false, false}).empty());
  EXPECT_TRUE(m.on_promise(4, {asked, true, everybody, false, false}).empty());
  auto out = m.on_promise(3, {asked, true, everybody, false, false});
  EXPECT_EQ(the<protocol::enter_view>(out).view.contributor_set(), members_of({1, 3, 4}));
}

TEST(RoundProtocol, ViewsThatMakeNoSenseAreNotEntered) {
  auto m = member(3);
  EXPECT_TRUE(m.on_propose(1, {1, 15, 15, false}).empty()) << "not the leader of view 1";
  EXPECT_TRUE(m.on_propose(0, {0, 15, 15, false}).empty()) << "not newer";
  EXPECT_TRUE(m.on_propose(0, {1, 0, 15, false}).empty()) << "no contributors";
  EXPECT_TRUE(m.on_propose(0, {1, 31, 15, false}).empty()) << "a contributor that is no member";
  EXPECT_TRUE(m.on_propose(0, {1, 15, 31, false}).empty()) << "a participant that is no member";
  EXPECT_TRUE(m.on_propose(0, {1, 8, 8, false}).empty()) << "no quorum";
  EXPECT_TRUE(m.on_propose(9, {term(9), 15, 15, false}).empty())
    << "from an index that is no member";
  EXPECT_TRUE(m.on_propose(0, {0xffffff00U, 15, 15, false}).empty())
    << "numbers must not wrap around";
  EXPECT_TRUE(m.on_takeover(2, term(0x3fffffeU)).empty());
  EXPECT_TRUE(m.on_takeover(1, term(1) + 1).empty()) << "takeovers begin a term";
  EXPECT_EQ(m.view().number, 0u);
  EXPECT_FALSE(m.ended());
}

TEST(RoundProtocol, AMemberLeftOutOfAViewEnds) {
  auto m = member(3);
  EXPECT_EQ(the<protocol::fail>(m.on_propose(0, {1, 7, 7, false})).why.code, ec::excluded);
}

TEST(RoundProtocol, AFailureIsFinal) {
  auto m = member(1);
  auto out = m.give_up({ec::timeout, "deadline"});
  ASSERT_NE(find<protocol::fail>(out), nullptr);
  EXPECT_EQ(find<protocol::send_suspect>(out)->to, 0u);
  EXPECT_TRUE(m.on_commit(0, holding(first_view(plan_for(4)))).empty());
  EXPECT_TRUE(m.on_result_complete(0, right).empty());
  EXPECT_TRUE(m.give_up({ec::timeout, {}}).empty());
  EXPECT_TRUE(m.on_propose(0, {4, 15, 15, false}).empty());
  EXPECT_FALSE(m.committed());
  EXPECT_FALSE(the<protocol::send_promise>(m.on_takeover(2, term(2))).promise.knows_view);
}

TEST(RoundProtocol, ACommitOfAResultThatIsNotHereIsAFailure) {
  auto m = member(1);
  auto out = m.on_commit(0, holding(first_view(plan_for(4))));
  EXPECT_EQ(the<protocol::fail>(out).why.code, ec::excluded);
}

TEST(RoundProtocol, OnlyTheCoordinatorMayAbort) {
  auto m = member(2);
  EXPECT_TRUE(m.on_abort(1, ec::cancelled).empty());
  EXPECT_EQ(the<protocol::fail>(m.on_abort(0, ec::cancelled)).why.code, ec::cancelled);
}

TEST(RoundProtocol, ALeaderThatWasPassedOverLearnsThatTheRoundIsOver) {
  std::vector<std::pair<std::size_t, protocol::send_suspect>> words;
  auto note = [&](std::size_t from, const protocol::actions& out) {
    ASSERT_NE(find<protocol::fail>(out), nullptr);
    const auto* word = find<protocol::send_suspect>(out);
    ASSERT_NE(word, nullptr);
    EXPECT_EQ(word->to, 0U);
    words.emplace_back(from, *word);
  };
  // Member 1 hears from nobody, and ends the round. Member 2 has promised it the next view.
  auto candidate = member(1);
  auto m = member(2);
  auto taken = candidate.on_suspicion(0, ec::stalled, t0);
  const auto& takeover = the<protocol::send_takeover>(taken);
  (void)m.on_takeover(1, takeover.number);
  (void)candidate.on_suspicion(2, ec::stalled, t0);
  note(1, candidate.on_suspicion(3, ec::stalled, t0));
  note(2, m.on_abort(1, ec::lost_quorum));
  auto leader = member(0);
  for (const auto& [from, word] : words)
    (void)leader.on_suspect(from, word.view, word.member, word.reason, t0);
  EXPECT_EQ(leader.view().participant_set(), members_of({0, 3}));
}

TEST(RoundProtocol, ARoundOfOneCommitsAtOnce) {
  EXPECT_NE(find<protocol::commit>(member(0, 1).on_result_complete(0, right)), nullptr);
}

TEST(RoundProtocol, AuxiliariesDoNotContribute) {
  auto plan = plan_for(3);
  plan.members[2].mode = member_mode::auxiliary;
  protocol leader{plan, 0, {}};
  EXPECT_EQ(leader.view().contributor_set(), members_of({0, 1}));
  EXPECT_EQ(leader.view().participant_set(), members_of({0, 1, 2}));
  EXPECT_TRUE((protocol{plan, 1, {}}.on_propose(0, {1, 7, 7, false}).empty()))
    << "nor may a view contain it";
}

TEST(RoundProtocol, ALeaderThatGivesUpNotifiesAllToGoOnWithoutIt) {
  auto leader = member(0);
  auto out = leader.give_up({ec::cancelled, {}});
  member_set told;
  for (const auto& a : out)
    if (const auto* word = std::get_if<protocol::send_suspect>(&a)) {
      EXPECT_EQ(word->member, 0U);
      told.insert(word->to);
    }
  EXPECT_EQ(told, members_of({1, 2, 3}));
  EXPECT_EQ(find<protocol::send_abort>(out), nullptr) << "the others' round is not over";
  auto next = member(1);
  out = next.on_suspect(0, 0, 0, ec::cancelled, t0);
  EXPECT_NE(find<protocol::send_takeover>(out), nullptr);
}

TEST(RoundProtocol, AClientNeverTakesOver) {
  auto plan = plan_for(4);
  plan.members[1].mode = member_mode::client;
  protocol client{plan, 1, {1, milliseconds{2'000}}};
  auto out = client.on_suspicion(0, ec::peer_lost, t0);
  EXPECT_EQ(find<protocol::send_takeover>(out), nullptr) << "it cannot reach other clients";
  EXPECT_EQ(the<protocol::send_suspect>(out).to, 2U);
  protocol next{plan, 2, {1, milliseconds{2'000}}};
  EXPECT_NE(find<protocol::send_takeover>(next.on_suspicion(0, ec::peer_lost, t0)), nullptr);
}

TEST(RoundProtocol, ALeaderThatReceivesTheDecisionPassesItOn) {
  auto leader = member(0);
  (void)leader.on_result_complete(0, right);
  (void)leader.on_suspicion(3, ec::peer_lost, t0); // it asks for promises
  auto out = leader.on_commit(2, holding(first_view(plan_for(4))));
  EXPECT_NE(find<protocol::commit>(out), nullptr);
  ASSERT_NE(find<protocol::send_commit>(out), nullptr)
    << "members that promised wait for its message";
  EXPECT_TRUE(find<protocol::send_commit>(out)->to.contains(members_of({1, 2})));
}

TEST(RoundProtocol, ALeaderThatReceivesAllPreparedDuringATakeoverStillSendsTheCommit) {
  auto leader = member(0);
  (void)leader.on_result_complete(0, right);
  (void)leader.on_prepared(1, 0, right);
  ASSERT_NE(find<protocol::send_takeover>(leader.on_suspicion(3, ec::peer_lost, t0)), nullptr);
  (void)leader.on_prepared(2, 0, right);
  auto out = leader.on_prepared(3, 0, right); // sent before it was lost
  ASSERT_NE(find<protocol::commit>(out), nullptr);
  EXPECT_NE(find<protocol::send_commit>(out), nullptr);
}

TEST(RoundProtocol, AMemberThatIsLostAfterItsPromiseDoesNotTakePart) {
  auto m = member(1, 5);
  auto out = m.on_suspicion(0, ec::peer_lost, t0);
  auto number = find<protocol::send_takeover>(out)->number;
  takeover_promise fresh{number, true, first_view(plan_for(5)), false, false};
  (void)m.on_promise(2, fresh);
  (void)m.on_suspicion(2, ec::peer_lost, t0);
  (void)m.on_promise(3, fresh);
  out = m.on_promise(4, fresh);
  EXPECT_EQ(the<protocol::enter_view>(out).view.participant_set(), members_of({1, 3, 4}));
}

TEST(RoundProtocol, ATakeoverCountsHoldersOfTheAdoptedSetInAnyView) {
  auto m = member(1, 5);
  (void)m.on_result_complete(0, right);
  (void)m.on_suspicion(0, ec::peer_lost, t0);
  (void)m.on_takeover(2, 2 * views_per_term);
  auto out = m.on_suspicion(2, ec::peer_lost, t0);
  auto number = find<protocol::send_takeover>(out)->number;
  auto all = first_view(plan_for(5));
  // Member 2 had proposed a view to member 3 alone.
  (void)m.on_promise(
    3, {number, true, {2 * views_per_term, all.contributors, 0b11110, true, right}, true, false});
  out = m.on_promise(4, {number, true, holding(all), true, false});
  ASSERT_NE(find<protocol::enter_view>(out), nullptr) << "three of five hold the result";
  EXPECT_EQ(find<protocol::enter_view>(out)->view.contributors, all.contributors);
  EXPECT_EQ(find<protocol::enter_view>(out)->view.participant_set(), members_of({1, 3, 4}));
}

} // namespace
} // namespace waggle
