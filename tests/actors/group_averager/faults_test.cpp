// What a group_averager remembers of members that were silent or wrong.

#include "tests/actors/group_averager/group_averager_fixture.hpp"

namespace waggle::testing {
namespace {

class FaultsInGroups : public GroupAverager {
protected:
  /// `a` and `b` are a group; `c` is outside.
  void begin() {
    ASSERT_TRUE(found(a).ok());
    ASSERT_TRUE(enter(b, {&a}).get().ok());
  }
  /// `a` and `b` average while the third member does nothing; the stall timeout is 5 s.
  void stalled_round(peer& a, peer& b, std::uint64_t epoch) {
    auto one = average(a, 1, epoch);
    auto two = average(b, 3, epoch, false);
    pass(6s);
    ASSERT_TRUE(one.answered());
    ASSERT_TRUE(two.answered());
    EXPECT_EQ(one.get()->report.outcome, round_outcome::shrunk);
    EXPECT_EQ(one.get()->group.members.size(), 2U);
  }
  static double excluded(const peer& p) {
    return exported(*p.ctx.metrics, "waggle_averaging_excluded_peers{kind=\"vector\"");
  }
  static double exclusions(const peer& p, const std::string& fault) {
    return exported(*p.ctx.metrics, "waggle_averaging_exclusions_total{fault=\"" + fault + "\"");
  }

  peer& a = add();
  peer& b = add();
  peer& c = add();
};

TEST_F(FaultsInGroups, AHostWhoseNewcomerIsSilentAdmitsNoOtherForAWhile) {
  begin();
  auto one = average(a, 1, 3);
  auto two = average(b, 3, 3, false);
  pass(1s);
  ASSERT_TRUE(one.answered() && two.answered());
  host = "10.0.0.1";
  ASSERT_TRUE(enter(c, {&a}).get().ok());
  one = average(a, 1, 4);
  two = average(b, 3, 4, false);
  pass(2s); // less than the stall timeout
  ASSERT_TRUE(one.answered() && two.answered());
  EXPECT_EQ(one.get()->report.contributors.size(), 2U);
  EXPECT_TRUE(one.get()->keeps_majority);
  auto& d = add();
  auto refused = enter(d, {&a});
  ASSERT_TRUE(refused.answered());
  EXPECT_EQ(refused.get().error().code, ec::excluded);
}

TEST_F(FaultsInGroups, AMemberThatAppliesBeforeItsRoundHasEndedGainsNothing) {
  begin();
  ASSERT_TRUE(enter(c, {&a}).get().ok());
  stalled_round(a, b, 3);
  ASSERT_TRUE(enter(c, {&a}).get().ok());
  std::vector<notify_peer> held; // so that the round goes on without c for a while
  lets_through = [&](std::size_t from, const notify_peer& msg) {
    bool ends_round = from == 1 && std::holds_alternative<wire::round_prepared>(msg.what);
    if (ends_round)
      held.push_back(msg);
    return !ends_round;
  };
  auto one = average(a, 1, 4);
  auto two = average(b, 3, 4, false);
  pass(6s);
  ASSERT_FALSE(held.empty());
  auto again = enter(c, {&a});
  for (const auto& msg : held)
    deliver(a.ctx, a.actor, {b.ctx.record, msg.what, msg.body, nullptr}, sys.clock().now());
  pass(1s);
  ASSERT_TRUE(one.answered());
  EXPECT_EQ(exclusions(a, "silent"), 1.0);
  EXPECT_EQ(one.get()->group.members.size(), 2U);
  EXPECT_FALSE(again.answered() && again.get().ok());
}

} // namespace
} // namespace waggle::testing
