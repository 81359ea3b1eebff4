#include "actors/averaging/fault_watch.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/test_context.hpp"

namespace waggle::testing {
namespace {

using namespace std::chrono_literals;

const steady_time t0 = steady_time{} + 1h;
constexpr std::size_t many = 10; // members of our group

struct FaultWatch : ::testing::Test {
  FaultWatch() {
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
      plan.members.push_back({test_peer(seed), member_mode::node});
  }
  peer_id member(std::size_t i) const { return plan.members[i].peer.id; }

  /// A round that was decided without these members, or failed because of them.
  round_report blaming(std::vector<std::size_t> at_fault, ec reason, failure why = {}) const {
    round_report report{
      .outcome = why.code == ec::none ? round_outcome::shrunk : round_outcome::failed, .why = why};
    for (std::size_t i = 0; i < plan.members.size(); ++i)
      if (std::find(at_fault.begin(), at_fault.end(), i) != at_fault.end())
        report.faults.push_back({member(i), reason, true});
      else if (why.code == ec::none)
        report.participants.push_back(member(i));
    return report;
  }
  /// Twice, because the first silence excludes nobody.
  void twice(const round_report& report) {
    for (int i = 0; i < 2; ++i) {
      watch.begin_round(plan);
      watch.on_round(report, t0);
    }
  }

  node_context ctx = test_context(9, std::make_shared<manual_clock>());
  std::string kind = "vector";
  round_plan plan;
  fault_watch watch{ctx, kind};
};

TEST_F(FaultWatch, RemembersWhoeverTheRoundWasDecidedWithout) {
  twice(blaming({2}, ec::stalled));
  EXPECT_EQ(watch.excluded(many, t0), (std::vector<peer_id>{member(2)}));
  EXPECT_EQ(exported(*ctx.metrics, "waggle_averaging_exclusions_total{fault=\"silent\""), 1.0);
  watch.show(many, t0);
  EXPECT_EQ(exported(*ctx.metrics, "waggle_averaging_excluded_peers"), 1.0);
  watch.show(many, t0 + 5s);
  EXPECT_EQ(exported(*ctx.metrics, "waggle_averaging_excluded_peers"), 0.0);
}

TEST_F(FaultWatch, RefusesStrangersOfAHostWhoseNewcomerWasSilent) {
  auto stranger = test_peer(5).id;
  watch.accepted(member(2), "10.0.0.1");
  watch.accepted(member(3), "10.0.0.2");
  watch.begin_round(plan);
  watch.on_round(blaming({2}, ec::stalled), t0);
  EXPECT_EQ(watch.refuses(stranger, "10.0.0.1", many, t0 + 9s), ec::excluded);
  EXPECT_EQ(watch.refuses(stranger, "10.0.0.2", many, t0), ec::none) << "of another host";
  EXPECT_EQ(watch.refuses(stranger, "10.0.0.1", many, t0 + 10s), ec::none);
}

TEST_F(FaultWatch, RemembersWhoeverLeavesAgainIfTheOthersWentOn) {
  auto report = blaming({2}, ec::cancelled);
  report.faults[0].seen = false;
  report.faults[0].left = true;
  auto failed = report;
  failed.outcome = round_outcome::failed;
  twice(failed);
  EXPECT_TRUE(watch.excluded(many, t0).empty());
  twice(report);
  EXPECT_EQ(watch.excluded(many, t0), (std::vector<peer_id>{member(2)}));
  EXPECT_EQ(exported(*ctx.metrics, "waggle_averaging_exclusions_total{fault=\"left\""), 1.0);
}

TEST_F(FaultWatch, WhoKeptMostRoundsWaitingStaysOutTheNextTimeThatItIsLate) {
  plan.gathered.resize(4);
  watch.begin_round(plan, true);
  for (std::size_t i = 0; i <= patience::late_rounds_min; ++i) {
    auto late = blaming({}, ec::none);
    late.outcome = round_outcome::complete;
    late.weight_sum = 4;
    round_marks marks;
    marks.began = t0 + i * 2s;
    for (std::size_t m = 0; m < 4; ++m) {
      auto& its = marks.members.emplace_back();
      its.peer = member(m);
      its.reduces = true;
      its.weight = m == 0 ? 0 : 1; // nobody tells itself
      its.contributions.mark(m == 2 ? 1s : 1ms);
    }
    late.marks = std::make_shared<const round_marks>(marks);
    EXPECT_EQ(watch.slow_in(plan), member_set{});
    watch.on_round(late, t0);
    watch.begin_round(plan, true);
  }
  member_set slow;
  slow.insert(2);
  EXPECT_EQ(watch.slow_in(plan), slow);
  EXPECT_EQ(watch.refuses(member(2), {}, many, t0), ec::none);
  watch.on_round(blaming({1, 2}, ec::stalled), t0);
  EXPECT_EQ(watch.refuses(member(2), {}, many, t0), ec::none) << "half of them";
  watch.begin_round(plan, true);
  watch.on_round(blaming({2}, ec::stalled), t0);
  EXPECT_EQ(watch.refuses(member(2), {}, many, t0), ec::stalled);
  watch.begin_round(plan); // not of an open group
  EXPECT_EQ(watch.slow_in(plan), member_set{});
}

TEST_F(FaultWatch, TellsWhoIsSilentBecauseThereIsNoLink) {
  std::vector<std::pair<peer_id, bool>> told;
  ctx.unlinked = [&](const peer_record& peer, bool stalled) {
    told.emplace_back(peer.id, stalled);
  };
  auto round = [&](const round_report& report) {
    told.clear();
    watch.begin_round(plan);
    watch.on_round(report, t0);
    std::sort(told.begin(), told.end());
    return told;
  };
  using members = std::vector<std::pair<peer_id, bool>>;
  auto report = blaming({1, 2}, ec::stalled);
  report.faults[0].seen = false; // others told us
  EXPECT_EQ(round(report), (members{{member(2), true}}));
  // The others went on without us, one of whom has given us up.
  plan.members.resize(2);
  EXPECT_EQ(round(blaming({}, ec::none, {ec::excluded, {}})).size(), 2U);
  // A client needs links with nodes only; the others are still there.
  ctx.reach->set_as_client(true);
  plan.members[1].mode = member_mode::client;
  members expected{{member(0), true}, {member(1), false}};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(round(blaming({0, 1}, ec::stalled)), expected);
}

TEST_F(FaultWatch, ALinkThatWasLostIsNoMissingOne) {
  bool told = false;
  ctx.unlinked = [&](const peer_record&, bool) { told = true; };
  watch.begin_round(plan);
  watch.on_disconnected({member(2), {ec::peer_lost, {}}}, t0);
  watch.on_round(blaming({2}, ec::stalled), t0);
  EXPECT_FALSE(told);
}

TEST_F(FaultWatch, ALeaderNeedsNoOtherMode) {
  bool told = false;
  ctx.unlinked = [&](const peer_record&, bool) { told = true; };
  plan.members.front().peer = ctx.record;
  watch.begin_round(plan);
  watch.on_round(blaming({2}, ec::stalled), t0);
  EXPECT_FALSE(told);
}

TEST_F(FaultWatch, BelievesTheDecisionAndNotItsOwnDoubt) {
  auto report = blaming({2}, ec::stalled);
  report.participants.push_back(member(2));
  twice(report);
  EXPECT_TRUE(watch.excluded(many, t0).empty());
}

TEST_F(FaultWatch, ALinkThatWasLostInTheRoundExplainsASilence) {
  for (int i = 0; i < 3; ++i) {
    watch.begin_round(plan);
    watch.on_disconnected({member(2), {ec::peer_lost, {}}}, t0);
    watch.on_round(blaming({2}, ec::timeout), t0);
  }
  EXPECT_TRUE(watch.excluded(many, t0).empty());
  watch.begin_round(plan);
  watch.on_disconnected({member(2), {ec::peer_lost, {}}}, t0);
  watch.on_round(blaming({2}, ec::non_finite), t0);
  EXPECT_FALSE(watch.excluded(many, t0).empty()) << "it does not explain wrong values";
}

// This peer was suspended: on waking, all others are silent to it.
TEST_F(FaultWatch, AFailedRoundInWhichMostWereSilentBlamesNobody) {
  twice(blaming({1, 2, 3}, ec::stalled, {ec::lost_quorum, {}}));
  twice(blaming({1}, ec::stalled, {ec::excluded, {}}));
  EXPECT_TRUE(watch.excluded(many, t0).empty());
  twice(blaming({1, 2}, ec::stalled, {ec::lost_quorum, {}}));
  EXPECT_TRUE(watch.excluded(many, t0).empty()) << "half of them";
  twice(blaming({1}, ec::stalled, {ec::too_few_contributors, {}}));
  EXPECT_EQ(watch.excluded(many, t0).size(), 1U);
}

TEST_F(FaultWatch, OfTwoMembersNeitherBlamesTheOtherForSilence) {
  plan.members.resize(2);
  twice(blaming({1}, ec::stalled));
  EXPECT_TRUE(watch.excluded(many, t0).empty());
}

TEST_F(FaultWatch, WhatOthersSayCostsNobodyItsPlace) {
  auto report = blaming({2}, ec::unequal_results);
  report.faults[0].seen = false;
  twice(report);
  EXPECT_TRUE(watch.excluded(many, t0).empty());
}

} // namespace
} // namespace waggle::testing
