// Peers that enter a group through others, which may be silent.

#include "tests/actors/group_averager/group_averager_fixture.hpp"

namespace waggle::testing {
namespace {

using ::testing::ElementsAre;

TEST_F(GroupAverager, ASilentCandidateIsGivenUpAfterTheRequestTimeout) { // --request-timeout
  for (milliseconds limit : {300ms, 4'000ms}) {
    request_timeout = limit;
    auto& mute = add();
    auto& leader = add();
    auto& enters = add();
    silent = {mute.ctx.record.id};
    ASSERT_TRUE(found(leader).ok());
    asked.clear();
    auto entered = enter(enters, {&mute, &leader});
    pass(limit - 1ms);
    EXPECT_THAT(asked, ElementsAre(mute.ctx.record.id)) << limit.count() << " ms";
    EXPECT_FALSE(entered.answered());
    pass(1ms);
    EXPECT_THAT(asked, ElementsAre(mute.ctx.record.id, leader.ctx.record.id));
    EXPECT_TRUE(entered.get().ok()) << limit.count() << " ms";
  }
}

/// A group of two, and who else would like to be in it and reaches only one of them.
struct LeaderNotReached : GroupAverager {
  LeaderNotReached() {
    EXPECT_TRUE(found(a).ok());
    EXPECT_TRUE(enter(b, {&a}).get().ok());
  }
  const peer_id& leader() const { return a.views.back().members.front(); }
  void average_both() {
    auto one = average(a, 1, epoch);
    auto two = average(b, 1, epoch, false);
    pass(1s);
    EXPECT_TRUE(one.get().ok());
    EXPECT_TRUE(two.get().ok());
    ++epoch;
  }
  ec try_to_enter(peer& who, peer& through, const peer& unreached) {
    silent = {unreached.ctx.record.id};
    auto entered = enter(who, {&through});
    pass(request_timeout);
    return entered.answered() && !entered.get() ? entered.get().error().code : ec::none;
  }

  peer& a = add();
  peer& b = add();
  std::uint64_t epoch = 3;
};

TEST_F(LeaderNotReached, TheMemberThatIsReachedLeadsAfterTheNextRound) {
  auto& outside = add();
  std::map<peer_id, int> reports; // that these peers sent
  lets_through = [&](std::size_t from, const notify_peer& msg) {
    if (std::holds_alternative<wire::bandwidth_report>(msg.what))
      ++reports[peers[from]->ctx.record.id];
    return true;
  };
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(try_to_enter(outside, b, a), ec::unreachable);
  EXPECT_EQ(reports[b.ctx.record.id], 1) << "one for each plan";
  EXPECT_EQ(leader(), a.ctx.record.id);
  average_both();
  EXPECT_EQ(leader(), b.ctx.record.id);
  EXPECT_EQ(b.views.back().members, a.views.back().members);
  EXPECT_EQ(try_to_enter(outside, b, a), ec::none);
  EXPECT_EQ(b.views.back().members.size(), 3U);
  EXPECT_EQ(reports[a.ctx.record.id], 0);
  auto round = average(a, 1, epoch);
  EXPECT_EQ(reports[a.ctx.record.id], 1) << "the new leader does not know its bandwidth";
  pass(25s);
}

TEST_F(LeaderNotReached, OneThatLeavesSoonGivesLeadAndShareAwayAtOnce) {
  average_both();
  round_plan plan; // the last one that was announced
  lets_through = [&](std::size_t, const notify_peer& msg) {
    if (const auto* next = std::get_if<wire::next_plan>(&msg.what))
      plan = next->plan;
    return true;
  };
  a.ctx.bandwidth->withdraw();
  pass(1s);
  EXPECT_EQ(leader(), b.ctx.record.id);
  EXPECT_EQ(plan.shares, (std::vector<std::uint64_t>{values, 0}));
  average_both();
  b.ctx.bandwidth->withdraw();
  pass(3s);
  EXPECT_EQ(leader(), b.ctx.record.id) << "nobody else reduces";
  EXPECT_EQ(plan.shares, (std::vector<std::uint64_t>{values, 0}));
  average_both();
}

TEST_F(LeaderNotReached, AMemberThatLeavesSoonReducesNoMore) {
  average_both();
  round_plan plan;
  lets_through = [&](std::size_t, const notify_peer& msg) {
    if (const auto* next = std::get_if<wire::next_plan>(&msg.what))
      plan = next->plan;
    return true;
  };
  b.ctx.bandwidth->withdraw();
  pass(1s);
  EXPECT_EQ(leader(), a.ctx.record.id);
  EXPECT_EQ(plan.shares, (std::vector<std::uint64_t>{values, 0}));
  average_both();
}

} // namespace
} // namespace waggle::testing
