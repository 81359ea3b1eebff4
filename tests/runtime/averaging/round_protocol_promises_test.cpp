// The protocol if members may lie: views above 0 follow from promises.

#include <gtest/gtest.h>

#include "tests/runtime/averaging/protocol_member.hpp"

namespace waggle {
namespace {

round_plan plan_with_a_liar(std::size_t members = 4) {
  auto plan = plan_for(members);
  plan.reduce_by.faulty_max = 1;
  return plan;
}

protocol careful(std::size_t self, std::size_t members = 4) {
  return {plan_with_a_liar(members), self, {1, milliseconds{2'000}}};
}

takeover_promise unprepared(std::uint32_t number) {
  return {number, true, first_view(plan_for(4)), false, false, {}, {}};
}
takeover_promise prepared(std::uint32_t number, const digest& result = right) {
  return {number, true, holding(first_view(plan_for(4)), result), true, false, result, {}};
}

constexpr auto the_leaders = term(4); // member 0 again

TEST(RoundProtocolPromises, ALeaderAsksBeforeItChangesTheContributors) {
  auto leader = careful(0);
  auto out = leader.on_suspicion(3, ec::peer_lost, t0);
  EXPECT_EQ(find<protocol::enter_view>(out), nullptr);
  EXPECT_EQ(the<protocol::send_takeover>(out).number, the_leaders);
  (void)leader.on_promise(1, unprepared(the_leaders));
  out = leader.on_promise(2, unprepared(the_leaders));
  ASSERT_NE(find<protocol::send_propose>(out), nullptr);
  const auto& sent = *find<protocol::send_propose>(out);
  EXPECT_EQ(sent.view.contributor_set(), members_of({0, 1, 2}));
  EXPECT_EQ(sent.promises.size(), 3u) << "its own among them";

  auto follower = careful(1);
  (void)follower.on_takeover(0, the_leaders);
  out = follower.on_propose(0, sent.view, sent.promises);
  EXPECT_NE(find<protocol::enter_view>(out), nullptr);
}

TEST(RoundProtocolPromises, AViewThatDoesNotFollowIsNotEntered) {
  auto m = careful(1);
  takeover_promises shown{
    {0, unprepared(the_leaders)}, {1, prepared(the_leaders)}, {2, prepared(the_leaders)}};
  round_view without{the_leaders, 7, 7, false, {}};
  EXPECT_TRUE(m.on_propose(0, without, shown).empty());
  EXPECT_TRUE(m.on_propose(0, without, {}).empty());
  EXPECT_TRUE(m.on_propose(0, {1, 7, 7, false, {}}, {}).empty()) << "in the leader's first term";
  EXPECT_TRUE(m.on_propose(0, {the_leaders, 15, 7, true, wrong}, shown).empty());
  EXPECT_EQ(m.view().number, 0u);
  auto out = m.on_propose(0, {the_leaders, 15, 7, true, right}, shown);
  EXPECT_NE(find<protocol::enter_view>(out), nullptr);
}

TEST(RoundProtocolPromises, AMemberIsLeftOutOnlyByAViewThatFollows) {
  auto m = careful(3);
  round_view without{the_leaders, 7, 7, false, {}};
  EXPECT_TRUE(m.on_propose(0, without, {}).empty());
  takeover_promises shown{
    {0, unprepared(the_leaders)}, {1, unprepared(the_leaders)}, {2, unprepared(the_leaders)}};
  EXPECT_EQ(the<protocol::fail>(m.on_propose(0, without, shown)).why.code, ec::excluded);
}

TEST(RoundProtocolPromises, SignaturesAreCheckedOnlyIfTheViewFollows) {
  std::size_t checks = 0;
  protocol m{plan_with_a_liar(),
             1,
             {1, milliseconds{2'000}, 1, {}, [&](std::size_t, const takeover_promises&) {
                ++checks;
                return false;
              }}};
  takeover_promises shown{
    {0, unprepared(the_leaders)}, {1, unprepared(the_leaders)}, {2, unprepared(the_leaders)}};
  EXPECT_TRUE(m.on_propose(0, {the_leaders, 15, 7, false, {}}, shown).empty());
  EXPECT_EQ(checks, 0u);
  EXPECT_TRUE(m.on_propose(0, {the_leaders, 7, 7, false, {}}, shown).empty());
  EXPECT_EQ(checks, 1u);
}

TEST(RoundProtocolPromises, WhoLacksTheAdoptedResultIsSentIt) {
  auto m = careful(1);
  takeover_promises shown{
    {0, prepared(the_leaders)}, {1, unprepared(the_leaders)}, {2, prepared(the_leaders)}};
  auto out = m.on_propose(0, {the_leaders, 15, 7, true, right}, shown);
  EXPECT_NE(find<protocol::await_repair>(out), nullptr);
  EXPECT_EQ(m.holders(), members_of({0, 2}));
  EXPECT_EQ(find<protocol::send_prepared>(out), nullptr);
  EXPECT_EQ(m.promise().value, right) << "adopted, so it is not forgotten";
  out = m.on_result_complete(the_leaders, right);
  EXPECT_NE(find<protocol::send_prepared>(out), nullptr);
}

TEST(RoundProtocolPromises, ALeaderThatLacksTheResultHasItAdoptedAllTheSame) {
  auto leader = careful(0);
  (void)leader.on_suspicion(3, ec::peer_lost, t0);
  (void)leader.on_promise(1, prepared(the_leaders));
  auto out = leader.on_promise(2, prepared(the_leaders));
  EXPECT_TRUE(the<protocol::send_propose>(out).view.adopted);
  EXPECT_NE(find<protocol::await_repair>(out), nullptr);
  EXPECT_EQ(leader.holders(), members_of({1, 2}));
}

TEST(RoundProtocolPromises, DigestsWithAKeyAreReportedWithoutIt) {
  const auto plain = sha256("the same bytes, without a key");
  protocol m{plan_with_a_liar(), 1, {1, milliseconds{2'000}, 1, [&] { return plain; }}};
  (void)m.on_result_complete(0, right);
  auto out = m.on_takeover(0, the_leaders);
  EXPECT_EQ(the<protocol::send_promise>(out).promise.value, plain);
  EXPECT_EQ(the<protocol::send_promise>(out).promise.view.result, right);
}

TEST(RoundProtocolPromises, APromiseThatContradictsItselfIsNoAnswer) {
  auto leader = careful(0);
  (void)leader.on_suspicion(3, ec::peer_lost, t0);
  auto lie = unprepared(the_leaders);
  lie.view.number = the_leaders + 1;
  (void)leader.on_promise(1, lie);
  auto out = leader.on_promise(2, unprepared(the_leaders));
  ASSERT_NE(find<protocol::fail>(out), nullptr) << "two of four are no quorum";
  EXPECT_EQ(find<protocol::fail>(out)->why.code, ec::lost_quorum);
}

TEST(RoundProtocolPromises, WithThreeMembersNothingIsProven) {
  auto leader = careful(0, 3);
  auto out = leader.on_suspicion(2, ec::peer_lost, t0);
  EXPECT_EQ(the<protocol::send_propose>(out).view.number, 1u);
  EXPECT_TRUE(the<protocol::send_propose>(out).promises.empty());
}

} // namespace
} // namespace waggle
