#include "runtime/matchmaking/group_plan.hpp"

#include <functional>

#include "tests/runtime/matchmaking/search_fixture.hpp"

namespace waggle {
namespace {

/// Peer 1 leads a group with peers 2 and 3.
struct GroupPlan : ::testing::Test {
  GroupPlan() {
    purpose.epoch = epoch_id{7};
    purpose.codecs = {{1'000, codec_id::none}};
    purpose.gather = "from 1";
    followers = {seeker(2), seeker(3)};
    followers[0].gather = "from 2";
    followers[0].bandwidth = 5e6;
    id.bytes.fill(std::byte{9});
  }
  formed_group made() {
    auto group = make_group_plan(config, purpose, peer(1), followers, id);
    EXPECT_TRUE(group);
    return *group;
  }
  /// What peer 2 says to the plan.
  status checked(const round_plan& plan) const {
    auto own = purpose;
    own.gather = "from 2";
    return check_group_plan(config, own, peer(2).id, peer(1).id, plan);
  }
  void expect_refused(ec code, const std::function<void(round_plan&)>& change) {
    auto plan = made().plan;
    change(plan);
    auto said = checked(plan);
    EXPECT_EQ(said.error().code, code) << said.error().detail;
  }

  matchmaking_config config;
  group_purpose purpose;
  std::vector<group_search::seeker> followers;
  round_id id;
};

TEST_F(GroupPlan, AFollowerAcceptsWhatItsLeaderMakes) {
  auto group = made();
  EXPECT_TRUE(checked(group.plan));
  EXPECT_EQ(group.plan.id, id);
  EXPECT_EQ(group.plan.gathered, (std::vector<std::string>{"from 1", "from 2", ""}));
  EXPECT_EQ(group.terms.bandwidths.at(1).bytes_per_second, 5e6);
}

TEST_F(GroupPlan, AGroupInWhichNobodyMayReduceHasNoPlan) {
  purpose.bandwidth = 0;
  for (auto& follower : followers)
    follower.bandwidth = 0;
  EXPECT_FALSE(make_group_plan(config, purpose, peer(1), followers, id));
}

TEST_F(GroupPlan, WhatTheMembersDidNotAgreeOnIsRefused) {
  auto violation = ec::protocol_violation;
  expect_refused(violation, [](round_plan& p) { std::swap(p.members[0], p.members[2]); });
  expect_refused(violation, [](round_plan& p) { p.members[1].peer = peer(4); });
  expect_refused(violation, [](round_plan& p) { p.members[1].mode = member_mode::auxiliary; });
  expect_refused(violation, [](round_plan& p) { p.gathered[1] = "changed"; });
  expect_refused(violation, [](round_plan& p) { p.shares[0] += 1; });
  expect_refused(ec::schema_mismatch, [](round_plan& p) { p.prefix = "other"; });
  expect_refused(ec::schema_mismatch, [](round_plan& p) { p.min_contributors = 2; });
  expect_refused(ec::schema_mismatch, [](round_plan& p) {
    p.codecs = {{1'000, codec_id::float16}};
  });
  expect_refused(ec::schema_mismatch, [](round_plan& p) { p.part_elements = 8191; });
  expect_refused(ec::epoch_mismatch, [](round_plan& p) { p.epoch = epoch_id{8}; });
}

TEST_F(GroupPlan, AGroupThatIsTooSmallForARoundIsRefused) {
  config.min_contributors = 4;
  expect_refused(ec::protocol_violation, [](round_plan& p) { p.min_contributors = 4; });
}

TEST_F(GroupPlan, AShareForAPeerThatNeverReducesIsRefused) {
  auto plan = made().plan;
  auto own = purpose;
  own.gather = "from 2";
  own.bandwidth = 0;
  EXPECT_FALSE(check_group_plan(config, own, peer(2).id, peer(1).id, plan));
}

TEST_F(GroupPlan, AGroupLargerThanTheTargetIsRefused) {
  auto plan = made().plan;
  config.target_group_size = 2;
  EXPECT_FALSE(checked(plan));
}

TEST_F(GroupPlan, AsManyAuxiliariesAsMembersAreAccepted) {
  config.target_group_size = 3;
  for (unsigned n : {7, 8, 9})
    followers.push_back(extra(n));
  EXPECT_TRUE(checked(made().plan));
  followers.push_back(extra(10));
  EXPECT_FALSE(checked(made().plan));
}

TEST_F(GroupPlan, AnExtraAuxiliaryWantsAGroupThatAverages) {
  auto plan = made().plan;
  plan.members[1].mode = member_mode::auxiliary; // peer 2
  config.mode = member_mode::auxiliary;
  config.extra = true;
  EXPECT_TRUE(checked(plan)) << "peers 1 and 3 contribute";
  config.min_group_size = 3;
  EXPECT_FALSE(checked(plan));
}

TEST_F(GroupPlan, MembersTakeBucketsBeforeAuxiliaries) {
  followers.insert(followers.begin(), extra(9));
  auto plan = made().plan; // of peers 1, 9, 2 and 3
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < plan.members.size(); ++i)
    places.push_back(bucket_place(i, plan));
  EXPECT_EQ(places, (std::vector<std::size_t>{0, 3, 1, 2}));
}

} // namespace
} // namespace waggle
