#include "runtime/averaging/shares.hpp"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

using testing::ElementsAre;

using shares = std::vector<std::uint64_t>;
using bandwidths = std::vector<std::optional<double>>;

constexpr std::nullopt_t unknown = std::nullopt;

std::vector<share_bid> nodes(const bandwidths& all) {
  std::vector<share_bid> out;
  for (const auto& b : all)
    out.push_back({member_mode::node, b});
  return out;
}

shares split(std::uint64_t elements, const bandwidths& all, std::uint64_t min_vector_size = 0) {
  auto found = balanced_shares(nodes(all), elements, min_vector_size);
  EXPECT_TRUE(found) << to_string(found.error());
  return found ? *found : shares{};
}

/// The time of the slowest member, in units of one element at bandwidth 1.
double cost(std::uint64_t elements, const bandwidths& all, const shares& given) {
  double longest = 0;
  for (std::size_t i = 0; i < given.size(); ++i)
    longest =
      std::max(longest, (static_cast<double>(elements)
                         + (static_cast<double>(all.size()) - 2) * static_cast<double>(given[i]))
                          / std::max(*all[i], 1e-9));
  return longest;
}

// -- cost and optimality --------------------------------------------------------------------------

TEST(BalancedShares, L1AreNoSlowerThanTheReference) {
  struct example {
    std::uint64_t elements;
    bandwidths b;
    shares reference;
  };
  const std::vector<example> examples{
    {60, {.25, .25, .25, .25}, {15, 15, 15, 15}},
    {1024, {.3, .5, .9}, {0, 255, 769}},
    {60, {.44, .33, .22}, {42, 18, 0}},
    {60, {.55, .44, .40}, {35, 16, 9}},
    {1U << 20U, {.3, .5, .9, .6}, {0, 169'327, 602'629, 276'620}},
    {1U << 20U, {0.0, .5, 0.0, .6}, {0, 428'963, 0, 619'613}},
  };
  for (const auto& e : examples) {
    auto ours = split(e.elements, e.b);
    EXPECT_LE(cost(e.elements, e.b, ours), cost(e.elements, e.b, e.reference) * (1 + 1e-9))
      << testing::PrintToString(ours);
    EXPECT_EQ(std::accumulate(ours.begin(), ours.end(), std::uint64_t{0}), e.elements);
  }
}

TEST(BalancedShares, L2AreExact) {
  EXPECT_THAT(split(60, {.55, .44, .40}, 10), ElementsAre(41, 19, 0));
  EXPECT_THAT(split(60, {.32, .55, .44}, 10), ElementsAre(0, 40, 20));
  EXPECT_THAT(split(2, {.55, .20, .44}, 10), ElementsAre(1, 0, 1));
  EXPECT_THAT(split(1, {.55, .20, .44}, 10), ElementsAre(1, 0, 0));
  EXPECT_THAT(split(100, {unknown, unknown}), ElementsAre(50, 50));
  EXPECT_THAT(split(100, bandwidths(5)), ElementsAre(20, 20, 20, 20, 20));
  EXPECT_THAT(split(100, {0.0, 0.0, 0.0, unknown, unknown}), ElementsAre(0, 0, 0, 50, 50));
  EXPECT_EQ(balanced_shares(nodes({0.0, 0.0, 0.0}), 100, 0).error().code, ec::bad_config);
}

/// Random groups: bandwidths between 1e-6 and 1e5, evenly in magnitude.
bandwidths random_bandwidths(random_source& random, std::size_t members) {
  bandwidths out;
  for (std::size_t i = 0; i < members; ++i)
    out.emplace_back(std::pow(10.0, -6 + 11 * random.unit()));
  return out;
}

TEST(BalancedShares, L3AlwaysCoverTheVector) {
  random_source random{11};
  for (int i = 0; i < 2000; ++i) {
    SCOPED_TRACE("seed 11, case " + std::to_string(i));
    auto elements = random.below(std::uint64_t{1} << 30U);
    auto b = random_bandwidths(random, 1 + random.below(255));
    auto found = split(elements, b, random.below(3) == 0 ? random.below(elements + 1) : 0);
    ASSERT_EQ(found.size(), b.size());
    EXPECT_EQ(std::accumulate(found.begin(), found.end(), std::uint64_t{0}), elements);
    EXPECT_LE(*std::max_element(found.begin(), found.end()), elements) << "one wrapped around";
  }
}

TEST(BalancedShares, L4DoNotDependOnTheUnit) {
  random_source random{12};
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE("seed 12, case " + std::to_string(i));
    auto elements = random.below(std::uint64_t{1} << 30U);
    auto b = random_bandwidths(random, 1 + random.below(64));
    auto smallest = random.below(1000);
    auto plain = split(elements, b, smallest);
    for (int magnitude = -9; magnitude <= 12; ++magnitude) {
      auto scaled = b;
      for (auto& x : scaled)
        x = *x * std::pow(10.0, magnitude);
      ASSERT_EQ(split(elements, scaled, smallest), plain) << "times 1e" << magnitude;
    }
  }
}

TEST(BalancedShares, TheUnitThatMisleadsTheReferenceDoesNotMatter) {
  const bandwidths b{2.0, 1.0, 4.0, 3.0};
  auto plain = split(1000, b);
  EXPECT_LE(cost(1000, b, plain), cost(1000, b, {219, 0, 435, 346}));
  for (double unit : {1e6, 1e8, 1e9}) {
    bandwidths scaled;
    for (const auto& x : b)
      scaled.emplace_back(*x * unit);
    EXPECT_EQ(split(1000, scaled), plain) << unit;
  }
}

// -- roles and limits ---------------------------------------------------------------------------

TEST(BalancedShares, AreNeverSlowerThanEqualShares) {
  random_source random{13};
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE("seed 13, case " + std::to_string(i));
    std::size_t members = 2 + random.below(20);
    auto b = random_bandwidths(random, members);
    auto elements = members * (1000 + random.below(100'000));
    auto ours = split(elements, b);
    // Rounding up may delay a member by one whole value.
    auto rounding = static_cast<double>(elements + members) / static_cast<double>(elements);
    EXPECT_LE(cost(elements, b, ours),
              cost(elements, b, shares(members, elements / members)) * rounding);
  }
}

TEST(BalancedShares, ClientsReduceNothingAuxiliariesDo) {
  std::vector<share_bid> group{{member_mode::node, {}},
                               {member_mode::client, 1e9},
                               {member_mode::auxiliary, {}},
                               {member_mode::client, {}}};
  EXPECT_THAT(*balanced_shares(group, 11, 0), ElementsAre(6, 0, 5, 0));
}

TEST(BalancedShares, WhatAClientClaimsChangesNothingForOthers) {
  std::vector<share_bid> group{
    {member_mode::node, 3.0}, {member_mode::node, {}}, {member_mode::client, {}}};
  auto plain = *balanced_shares(group, 1000, 0);
  group[2].bandwidth = 1e300;
  EXPECT_EQ(*balanced_shares(group, 1000, 0), plain);
}

TEST(BalancedShares, OnlyClientsAreAnError) {
  EXPECT_FALSE(balanced_shares({{member_mode::client, {}}, {member_mode::client, 5.0}}, 10, 0));
  EXPECT_FALSE(balanced_shares({}, 10, 0));
}

TEST(BalancedShares, UnknownCountsAsTheMeanOfThePositiveOnes) {
  EXPECT_EQ(split(10'000, {4.0, unknown, 2.0, 0.0}), split(10'000, {4.0, 3.0, 2.0, 0.0}));
}

TEST(BalancedShares, ZeroNeverReducesBetweenTwoEither) {
  EXPECT_THAT(split(100, {0.0, 1.0}), ElementsAre(0, 100));
  EXPECT_THAT(split(100, {0.0, unknown}), ElementsAre(0, 100));
  EXPECT_THAT(split(100, {1.0, 1000.0}), ElementsAre(50, 50));
}

TEST(BalancedShares, TheRestGoesToTheFirstOfEquals) {
  EXPECT_THAT(split(62, {1.0, 1.0, 1.0}), ElementsAre(21, 21, 20));
  EXPECT_THAT(split(2, {1.0, 1.0, 1.0}), ElementsAre(1, 1, 0));
}

TEST(BalancedShares, AShareOfExactlyTheMinimumIsKept) {
  EXPECT_THAT(split(60, bandwidths(6, 7.0), 10), ElementsAre(10, 10, 10, 10, 10, 10));
}

TEST(BalancedShares, ExtremeBandwidthsAreStillShares) {
  for (double fast : {1.0, 1e300})
    for (double slow : {5e-324, 1e-300, 1e-12}) {
      auto found = split(1000, {fast, slow, slow, unknown});
      EXPECT_EQ(std::accumulate(found.begin(), found.end(), std::uint64_t{0}), 1000u);
    }
}

TEST(BalancedShares, AnEmptyVectorHasEmptyShares) {
  EXPECT_THAT(split(0, {1.0, 2.0}, 5), ElementsAre(0, 0));
}

TEST(BalancedShares, RefuseAVectorThatNoRoundCanHold) {
  EXPECT_TRUE(balanced_shares(nodes({1.0}), plan_elements_max, 0));
  EXPECT_FALSE(balanced_shares(nodes({1.0}), plan_elements_max + 1, 0));
}

} // namespace
} // namespace waggle
