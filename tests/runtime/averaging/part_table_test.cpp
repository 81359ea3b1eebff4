#include "runtime/averaging/part_table.hpp"

#include <map>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

TEST(PartTable, PartsCoverTheVectorInOrderWithinTheirShares) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    random_source random{seed};
    auto n = 1 + random.below(8);
    auto plan = plan_for(n, 1, static_cast<std::uint32_t>(1 + random.below(9)));
    plan.elements = 0;
    for (auto& share : plan.shares)
      plan.elements += share = random.below(3) == 0 ? 0 : random.below(50);
    if (plan.elements == 0)
      plan.elements = plan.shares[0] = 5;
    plan.codecs.clear();
    for (std::uint64_t left = plan.elements; left > 0; left -= plan.codecs.back().elements)
      plan.codecs.push_back(
        {1 + random.below(left), random.below(2) == 0 ? codec_id::none : codec_id::float16});
    ASSERT_TRUE(validate_plan(plan).ok()) << "seed " << seed;
    part_table table{plan};
    std::uint64_t next = 0;
    std::map<std::uint32_t, std::uint64_t> per_member;
    for (std::size_t i = 0; i < table.size(); ++i) {
      ASSERT_EQ(table[i].offset, next) << "seed " << seed;
      ASSERT_GT(table[i].count, 0u);
      ASSERT_LE(table[i].count, plan.part_elements);
      next += table[i].count;
      per_member[table[i].default_owner] += table[i].count;
    }
    ASSERT_EQ(next, plan.elements);
    for (auto [member, sum] : per_member)
      ASSERT_EQ(sum, plan.shares[member]) << "seed " << seed;
  }
}

TEST(PartTable, APartStaysWithItsDefaultOwnerWhileThatParticipates) {
  auto plan = plan_for(4);
  part_table table{plan};
  for (std::size_t i = 0; i < table.size(); ++i)
    EXPECT_EQ(table.owner(i, first_view(plan)), table[i].default_owner);
}

TEST(PartTable, PartsOfALostMemberAreSpreadOverTheOthersAndNeverGoToClients) {
  auto plan = plan_for(4, 40);
  plan.members[3].mode = member_mode::client;
  plan.shares = {40, 40, 80, 0};
  part_table table{plan};
  round_view view{4, 11, 11, false, {}}; // without member 2
  std::map<std::size_t, int> taken;
  for (std::size_t i = 0; i < table.size(); ++i) {
    auto owner = table.owner(i, view);
    if (table[i].default_owner == 2)
      ++taken[owner];
    else
      EXPECT_EQ(owner, table[i].default_owner);
  }
  EXPECT_EQ(taken, (std::map<std::size_t, int>{{0, 10}, {1, 10}}));
  EXPECT_FALSE(table.can_reduce({8, 8, 8, false}));
}

TEST(PartTable, AnotherLossMovesOnlyTheLostMembersParts) {
  auto plan = plan_for(5, 40);
  part_table table{plan};
  round_view one_lost{5, 0b11101, 0b11101, false, {}};
  round_view two_lost{10, 0b10101, 0b10101, false, {}};
  for (std::size_t i = 0; i < table.size(); ++i)
    if (auto owner = table.owner(i, one_lost); owner != 3)
      EXPECT_EQ(table.owner(i, two_lost), owner) << "part " << i;
    else
      EXPECT_NE(table.owner(i, two_lost), 3U) << "part " << i;
}

} // namespace
} // namespace waggle
