#include "runtime/averaging/group_bandwidths.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

constexpr double fast = 12e6;
constexpr double slow = 3e6;

TEST(GroupBandwidths, AMeasuredBandwidthReplacesTheOneBefore) {
  auto plan = plan_for(2);
  group_bandwidths known;
  auto who = plan.members[1].peer.id;
  EXPECT_FALSE(known.knows(who));
  EXPECT_TRUE(known.report(who, fast));
  EXPECT_TRUE(known.report(who, slow));
  EXPECT_EQ(known.of(plan), (member_bandwidths{{}, slow}));
}

TEST(GroupBandwidths, DeclaredBandwidthsAndPeersThatNeverReduceStay) {
  auto plan = plan_for(3);
  group_bandwidths known;
  member_bandwidths before{{fast, true}, 0.0, fast};
  known.assign(plan, before);
  EXPECT_FALSE(known.report(plan.members[0].peer.id, slow));
  EXPECT_FALSE(known.report(plan.members[1].peer.id, slow));
  EXPECT_EQ(known.of(plan), before);
  EXPECT_TRUE(known.report(plan.members[0].peer.id, 0.0)) << "it leaves soon";
  EXPECT_FALSE(known.report(plan.members[0].peer.id, 0.0)) << "as before";
  EXPECT_EQ(known.of(plan.members[0].peer.id), member_bandwidth{0.0});
}

TEST(GroupBandwidths, APartitionIsAnnouncedOnlyIfItIsWorthIt) {
  auto plan = plan_for(4);
  group_bandwidths known;
  known.assign(plan, member_bandwidths(4, fast));
  partition_terms terms;
  terms.parts = {plan.part_elements, false};
  EXPECT_FALSE(known.better(plan, terms));
  ASSERT_TRUE(known.report(plan.members[3].peer.id, slow));
  auto how = known.better(plan, terms);
  ASSERT_TRUE(how);
  EXPECT_LT(how->shares[3], how->shares[0]);
}

/// Traffic of 10 MB/s in four bursts, both ways. Returns the time afterwards.
steady_time carry(bandwidth_estimator& estimator) {
  steady_time now{};
  for (int burst = 0; burst < 4; ++burst) {
    for (int i = 0; i < 100; ++i, now += 10ms) {
      estimator.carried(false, 100'000, now);
      estimator.carried(true, 100'000, now);
    }
    now += 1s;
  }
  return now;
}

TEST(OwnBandwidth, IsNewOnceForEachChange) {
  auto estimator = std::make_shared<bandwidth_estimator>();
  own_bandwidth own{estimator, true};
  EXPECT_FALSE(own.update({})) << "nothing is known yet, as the others know";
  auto now = carry(*estimator);
  EXPECT_TRUE(own.update(now));
  ASSERT_TRUE(own.reported());
  EXPECT_NEAR(*own.reported(), 10e6, 1e6);
  EXPECT_FALSE(own.update(now));
}

TEST(OwnBandwidth, IsNeverNewWhereItIsNotMeasured) {
  own_bandwidth none{nullptr, true};
  auto estimator = std::make_shared<bandwidth_estimator>();
  own_bandwidth declared{estimator, false};
  auto now = carry(*estimator);
  EXPECT_FALSE(none.update(now));
  EXPECT_FALSE(declared.update(now));
}

} // namespace
} // namespace waggle
