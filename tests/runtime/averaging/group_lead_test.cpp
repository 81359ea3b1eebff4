#include "runtime/averaging/group_lead.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

using namespace std::chrono_literals;

struct GroupLead : ::testing::Test {
  peer_id peer(std::size_t i) const { return plan.members[i].peer.id; }
  round_id round(std::uint8_t number) const {
    round_id id;
    id.bytes.fill(std::byte{number});
    return id;
  }

  round_plan plan = plan_for(4);
  group_lead lead{5e6, {nullptr, false}};
  steady_time now{};
};

TEST_F(GroupLead, ALeaderLearnsABandwidthOnce) {
  lead.entered(peer(1));
  EXPECT_FALSE(lead.is_news(peer(1), now)) << "it was asked for admission";
  EXPECT_TRUE(lead.is_news(peer(2), now)) << "another one leads";
  EXPECT_FALSE(lead.is_news(peer(2), now));
  EXPECT_EQ(lead.bandwidth(), 5e6);
}

TEST_F(GroupLead, WhoNeverReducesReportsNoBandwidth) {
  group_lead never{0, {nullptr, false}};
  EXPECT_FALSE(never.is_news(peer(1), now));
  group_lead unknown{{}, {nullptr, false}};
  EXPECT_TRUE(unknown.is_news(peer(1), now)) << "the leader has to know that it is not known";
}

TEST_F(GroupLead, ReportsAreTakenOnceAndTheLastOneCounts) {
  lead.report(peer(1), 1e6);
  lead.report(peer(2), {});
  lead.report(peer(1), 2e6);
  auto reports = lead.take_reports();
  EXPECT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[peer(1)], 2e6);
  EXPECT_TRUE(lead.take_reports().empty());
}

TEST_F(GroupLead, AMemberAsksForItOncePerPlan) {
  EXPECT_TRUE(lead.asks_in(round(1)));
  EXPECT_FALSE(lead.asks_in(round(1)));
  EXPECT_TRUE(lead.asks_in(round(2)));
}

// Anybody can say that it does not reach the leader.
TEST_F(GroupLead, WhoeverHasGivenItAwayKeepsTheNextOneForFiveMinutes) {
  EXPECT_FALSE(lead.heir(now));
  lead.ask(peer(1));
  lead.ask(peer(2));
  EXPECT_EQ(lead.heir(now), peer(2)) << "the last one";
  lead.given(now);
  EXPECT_FALSE(lead.heir(now));
  lead.ask(peer(1));
  EXPECT_FALSE(lead.heir(now + 299s)) << "what was asked too early is forgotten";
  EXPECT_FALSE(lead.heir(now + 300s));
  lead.ask(peer(1));
  EXPECT_EQ(lead.heir(now + 300s), peer(1));
}

} // namespace
} // namespace waggle
