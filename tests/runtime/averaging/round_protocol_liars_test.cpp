// The protocol among members that say different things to different members.

#include <gtest/gtest.h>

#include "tests/runtime/averaging/protocol_member.hpp"

namespace waggle {
namespace {

TEST(RoundProtocolLiars, DifferentDigestsAreComparedAndNotCommitted) {
  auto leader = member(0);
  (void)leader.on_result_complete(0, right);
  (void)leader.on_prepared(1, 0, right);
  (void)leader.on_prepared(2, 0, wrong);
  auto out = leader.on_prepared(3, 0, right);
  EXPECT_NE(find<protocol::compare_results>(out), nullptr);
  EXPECT_EQ(find<protocol::commit>(out), nullptr);
  EXPECT_TRUE(leader.on_prepared(2, 0, right).empty()) << "the first digest for a view counts";
}

TEST(RoundProtocolLiars, WhatMostHoldIsAdoptedByTheOthers) {
  auto leader = member(0);
  auto victim = member(2);
  for (auto* m : {&leader, &victim})
    for (std::size_t other = 0; other < 4; ++other)
      (void)m->on_prepared(other, 0, other == 2 ? wrong : right);
  (void)leader.on_result_complete(0, right);
  (void)victim.on_result_complete(0, wrong);
  auto out = leader.on_most_agree(right, t0);
  auto next = the<protocol::send_propose>(out).view;
  EXPECT_TRUE(next.adopted);
  EXPECT_EQ(next.result, right);
  EXPECT_EQ(next.participant_set(), members_of({0, 1, 2, 3}));

  out = victim.on_propose(0, next);
  EXPECT_NE(find<protocol::await_repair>(out), nullptr);
  EXPECT_EQ(find<protocol::send_prepared>(out), nullptr);
  out = victim.on_result_complete(next.number, right);
  ASSERT_NE(find<protocol::send_prepared>(out), nullptr);
  (void)leader.on_prepared(1, next.number, right);
  (void)leader.on_prepared(3, next.number, right);
  EXPECT_NE(find<protocol::commit>(leader.on_prepared(2, next.number, right)), nullptr);
}

TEST(RoundProtocolLiars, ADecisionAboutOtherBytesIsNotApplied) {
  auto m = member(2);
  (void)m.on_result_complete(0, wrong);
  auto out = m.on_commit(0, holding(first_view(plan_for(4))));
  EXPECT_EQ(find<protocol::commit>(out), nullptr);
  EXPECT_EQ(the<protocol::fail>(out).why.code, ec::excluded);
}

TEST(RoundProtocolLiars, TheLeaderAppliesWhatWasDecidedBeforeItHadAnotherDigestAdopted) {
  auto leader = member(0);
  for (std::size_t other = 1; other < 4; ++other)
    (void)leader.on_prepared(other, 0, other == 2 ? wrong : right);
  (void)leader.on_result_complete(0, right);
  const auto plain = sha256("the same bytes, without a key");
  ASSERT_NE(find<protocol::send_propose>(leader.on_most_agree(plain, t0)), nullptr);
  // Member 1 had received `right` from all: the liar told it so.
  EXPECT_NE(find<protocol::commit>(leader.on_commit(1, holding(first_view(plan_for(4))))), nullptr);
  EXPECT_EQ(leader.promise().view.result, right) << "what was decided";
}

TEST(RoundProtocolLiars, SoDoesAMemberThatHasTakenTheOtherDigestOver) {
  auto m = member(3);
  (void)m.on_result_complete(0, right);
  const auto plain = sha256("the same bytes, without a key");
  auto all = first_view(plan_for(4));
  round_view next{1, all.contributors, all.participants, true, plain};
  ASSERT_NE(find<protocol::await_repair>(m.on_propose(0, next)), nullptr);
  ASSERT_NE(find<protocol::send_prepared>(m.on_same_result(1, plain)), nullptr);
  EXPECT_NE(find<protocol::commit>(m.on_commit(0, holding(all))), nullptr);
  EXPECT_EQ(m.promise().view.result, right);
}

TEST(RoundProtocolLiars, BytesThatWereRepairedAreNotThoseOfTheOldDigest) {
  auto m = member(3);
  (void)m.on_result_complete(0, wrong);
  auto all = first_view(plan_for(4));
  ASSERT_NE(find<protocol::await_repair>(
              m.on_propose(0, {1, all.contributors, all.participants, true, right})),
            nullptr);
  (void)m.on_result_complete(1, right);
  EXPECT_EQ(find<protocol::commit>(m.on_commit(0, holding(all, wrong))), nullptr);
}

TEST(RoundProtocolLiars, AnAdoptedViewNeedsADigest) {
  auto m = member(2);
  EXPECT_TRUE(m.on_propose(0, {1, 15, 7, true, {}}).empty());
  EXPECT_TRUE(m.on_propose(0, {1, 15, 7, false, right}).empty());
}

TEST(RoundProtocolLiars, OneAccuserIsNotEnoughIfMoreAreNeeded) {
  protocol leader{plan_for(4), 0, {1, milliseconds{2'000}, 2}};
  EXPECT_TRUE(leader.on_suspect(1, 0, 3, ec::stalled, t0).empty());
  EXPECT_TRUE(leader.on_suspect(1, 0, 3, ec::stalled, t0).empty()) << "it counts once";
  auto out = leader.on_suspect(2, 0, 3, ec::stalled, t0);
  EXPECT_EQ(the<protocol::enter_view>(out).view.participant_set(), members_of({0, 1, 2}));
}

TEST(RoundProtocolLiars, AMemberThatAloneAccusesAnotherIsLeftOutItself) {
  protocol leader{plan_for(4), 0, {1, milliseconds{2'000}, 2}};
  (void)leader.on_suspect(1, 0, 3, ec::stalled, t0);
  EXPECT_TRUE(leader.on_time(t0 + 1'900ms).empty()) << "we may notice the loss ourselves";
  auto out = leader.on_time(t0 + 2s);
  EXPECT_EQ(the<protocol::enter_view>(out).view.participant_set(), members_of({0, 2, 3}));
}

TEST(RoundProtocolLiars, AnAccuserThatHoldsTheResultStays) {
  protocol leader{plan_for(4), 0, {1, milliseconds{2'000}, 2}};
  (void)leader.on_suspect(1, 0, 3, ec::stalled, t0);
  (void)leader.on_prepared(1, 0, right);
  EXPECT_TRUE(leader.on_time(t0 + 2s).empty());
}

TEST(RoundProtocolLiars, OurOwnObservationNeedsNoAccuser) {
  protocol leader{plan_for(4), 0, {1, milliseconds{2'000}, 2}};
  (void)leader.on_suspect(1, 0, 3, ec::stalled, t0);
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  EXPECT_EQ(the<protocol::enter_view>(out).view.participant_set(), members_of({0, 1, 2}));
  EXPECT_TRUE(leader.on_time(t0 + 2s).empty());
}

} // namespace
} // namespace waggle
