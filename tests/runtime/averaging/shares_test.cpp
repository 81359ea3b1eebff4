#include "runtime/averaging/shares.hpp"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

using testing::ElementsAre;

constexpr auto node = member_mode::node;
constexpr auto client = member_mode::client;
constexpr auto auxiliary = member_mode::auxiliary;

std::vector<round_member> members(const std::vector<member_mode>& modes) {
  std::vector<round_member> out;
  for (auto mode : modes)
    out.push_back({{}, mode});
  return out;
}

TEST(EqualShares, SplitsEvenlyAndGivesTheRestToTheFirst) {
  EXPECT_THAT(equal_shares(members({node, node, node}), 60, 0), ElementsAre(20, 20, 20));
  EXPECT_THAT(equal_shares(members({node, node, node}), 62, 0), ElementsAre(21, 21, 20));
}

TEST(EqualShares, ClientsReduceNothingAuxiliariesDo) {
  EXPECT_THAT(equal_shares(members({node, client, auxiliary, client}), 11, 0),
              ElementsAre(6, 0, 5, 0));
}

TEST(EqualShares, FewerMembersReduceAVectorSmallerThanTheGroup) {
  EXPECT_THAT(equal_shares(members({node, node, node}), 2, 0), ElementsAre(1, 1, 0));
}

TEST(EqualShares, GivesSharesBelowTheMinimumToOthers) {
  EXPECT_THAT(equal_shares(members({node, node, node, node}), 100, 40), ElementsAre(50, 50, 0, 0));
  EXPECT_THAT(equal_shares(members({node, node}), 100, 1000), ElementsAre(100, 0));
}

TEST(EqualShares, WithoutAnyReducerNobodyHasAShare) {
  EXPECT_THAT(equal_shares(members({client, client}), 10, 0), ElementsAre(0, 0));
}

TEST(EqualShares, AlwaysCoverTheVector) {
  random_source random{11};
  for (int i = 0; i < 2000; ++i) {
    std::vector<member_mode> modes{node};
    auto others = random.below(round_members_max);
    for (std::uint64_t m = 0; m < others; ++m)
      modes.push_back(static_cast<member_mode>(random.below(3)));
    auto elements = 1 + random.below(plan_elements_max);
    auto shares = equal_shares(members(modes), elements, random.below(1000));
    ASSERT_EQ(shares.size(), modes.size());
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}), elements);
    for (std::size_t m = 0; m < modes.size(); ++m)
      EXPECT_TRUE(modes[m] != client || shares[m] == 0);
  }
}

} // namespace
} // namespace waggle
