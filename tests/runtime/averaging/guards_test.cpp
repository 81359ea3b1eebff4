#include "runtime/averaging/guards.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/random.hpp"
#include "tests/runtime/averaging/plans.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr, ::testing::IsEmpty;

constexpr aggregation every_aggregation[] = {
  {aggregator::mean, 0},          {aggregator::trimmed_mean, 1}, {aggregator::median, 0},
  {aggregator::centered_clip, 0}, {aggregator::krum, 1},         {aggregator::median_norm, 0}};

struct said {
  std::vector<float> values;
  double weight = 1;
};

/// The result of a reduction over all contributions; member i sends contributions[i].
part_reducer::reduction reduced(const std::vector<said>& contributions,
                                const aggregation& how = {}) {
  auto n = contributions.front().values.size();
  part_reducer reducer{codec_id::none, static_cast<std::uint32_t>(n), how};
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    auto bytes = std::as_bytes(std::span{contributions[i].values});
    EXPECT_TRUE(reducer.add(i, contributions[i].weight, copy_to_payload(bytes)));
  }
  std::vector<float> out(n);
  return reducer.reduce(member_set::first(contributions.size()), out);
}

std::vector<said> peers(std::size_t count, std::size_t n, float size, std::uint64_t seed = 1) {
  random_source random{seed};
  std::vector<said> out(count);
  for (auto& peer : out)
    for (std::size_t e = 0; e < n; ++e)
      peer.values.push_back(size * static_cast<float>(random.unit() * 2 - 1));
  return out;
}

void scale(said& peer, float factor) {
  for (auto& x : peer.values)
    x *= factor;
}

TEST(Guards, ValuesFarAboveAllOthersAreExcluded) {
  for (const auto& how : every_aggregation) {
    SCOPED_TRACE(to_string(how.how));
    auto all = peers(5, 1'500, 0.01F);
    scale(all[3], 1e12F);
    auto outcome = reduced(all, how);
    ASSERT_EQ(outcome.excluded.size(), 1U);
    const auto& found = outcome.excluded[0];
    EXPECT_EQ(found.member, 3U);
    EXPECT_EQ(found.reason, ec::implausible_norm);
    EXPECT_NEAR(found.observed, 1e10 / std::sqrt(3.0), 3e8); // uniform values
    EXPECT_DOUBLE_EQ(found.bound, 1e6);
    EXPECT_THAT(describe(found), HasSubstr("bound 1e+06"));
    EXPECT_TRUE(poisoned(outcome).empty());
  }
}

TEST(Guards, ANormIsComparedWithTheOthersNotWithAFixedNumber) {
  auto all = peers(5, 1'000, 1e4F);
  scale(all[1], 1e5F);
  EXPECT_THAT(reduced(all).excluded, IsEmpty()) << "1e9 beside 1e4";
  scale(all[1], 1e3F);
  auto outcome = reduced(all);
  ASSERT_EQ(outcome.excluded.size(), 1U);
  EXPECT_EQ(outcome.excluded[0].member, 1U);
  EXPECT_GT(outcome.excluded[0].bound, 1e9);
}

TEST(Guards, TwoByzantinePeersOfFiveAreBothNamed) {
  for (const auto& how : every_aggregation) {
    auto all = peers(5, 100, 1.0F);
    scale(all[0], 1e20F);
    scale(all[4], -1e15F);
    auto found = reduced(all, how).excluded;
    ASSERT_EQ(found.size(), 2U) << to_string(how.how);
    EXPECT_EQ(found[0].member, 0U);
    EXPECT_EQ(found[1].member, 4U);
  }
}

TEST(Guards, HealthyPeersDifferAndStay) {
  for (const auto& how : every_aggregation) {
    SCOPED_TRACE(to_string(how.how));
    // Only one peer has gradients for this part; the others send zeros.
    std::vector<said> alone(6, said{std::vector<float>(2'000, 0.0F)});
    alone[2] = peers(1, 2'000, 500'000.0F)[0];
    EXPECT_THAT(reduced(alone, how).excluded, IsEmpty());
    // Tiny values beside large ones; parameters in the thousands; a fast peer.
    auto mixed = peers(5, 2'000, 1e-20F);
    scale(mixed[0], 1e24F);
    EXPECT_THAT(reduced(mixed, how).excluded, IsEmpty());
    EXPECT_THAT(reduced(peers(5, 2'000, 1e30F), how).excluded, IsEmpty());
    auto fast = peers(5, 2'000, 1.0F);
    fast[1].weight = 1'000'000;
    scale(fast[1], 1'000);
    fast[2].weight = 0.001;
    EXPECT_THAT(reduced(fast, how).excluded, IsEmpty());
  }
}

TEST(Guards, RandomHealthyRoundsExcludeNoMember) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    random_source random{seed};
    auto all = peers(1 + random.below(10), 1 + random.below(300), 1.0F, seed);
    for (auto& peer : all) { // nine orders of magnitude apart
      scale(peer, static_cast<float>(std::pow(10.0, random.unit() * 9 - 4.5)));
      peer.weight = std::pow(10.0, random.unit() * 6 - 3);
    }
    for (const auto& how : every_aggregation)
      EXPECT_THAT(reduced(all, how).excluded, IsEmpty())
        << "seed " << seed << " " << to_string(how.how);
  }
}

TEST(Guards, TwoContributionsCannotBeCompared) {
  for (const auto& how : every_aggregation) {
    auto two = peers(2, 64, 1.0F);
    scale(two[0], 1e20F);
    two[1].weight = 1e50;
    EXPECT_THAT(reduced(two, how).excluded, IsEmpty());
    // A third contribution with weight 0 does not help.
    two.push_back({std::vector<float>(64, 1.0F), 0});
    EXPECT_THAT(reduced(two, how).excluded, IsEmpty());
  }
}

TEST(Guards, AMajorityOfImplausibleValuesExcludesNoHonestPeer) {
  auto all = peers(5, 64, 1.0F);
  for (std::size_t i : {0U, 1U, 2U})
    scale(all[i], 1e20F);
  for (const auto& found : reduced(all).excluded)
    EXPECT_LT(found.member, 3U);
}

TEST(Guards, NaNAndHugeValuesAreDistinguished) {
  for (const auto& how : every_aggregation) {
    SCOPED_TRACE(to_string(how.how));
    auto all = peers(6, 3'000, 1.0F);
    all[1].values[2'999] = std::nanf("");
    all[2].values[0] = -std::numeric_limits<float>::infinity();
    scale(all[5], 1e15F);
    auto outcome = reduced(all, how);
    EXPECT_EQ(poisoned(outcome), members_of({1, 2}));
    ASSERT_EQ(outcome.excluded.size(), 3U);
    EXPECT_EQ(outcome.excluded[0].reason, ec::non_finite);
    EXPECT_EQ(outcome.excluded[1].reason, ec::non_finite);
    EXPECT_EQ(outcome.excluded[2].member, 5U);
    EXPECT_EQ(outcome.excluded[2].reason, ec::implausible_norm);
    EXPECT_THAT(describe(outcome.excluded[0]), HasSubstr("NaN"));
  }
}

TEST(Guards, AnImplausibleWeightIsExcluded) {
  auto all = peers(4, 10, 1.0F);
  all[2].weight = 1e12;
  auto outcome = reduced(all);
  ASSERT_EQ(outcome.excluded.size(), 1U);
  EXPECT_EQ(outcome.excluded[0], (outlier{2, ec::bad_weight, 1e12, 1e9}));
  EXPECT_THAT(describe(outcome.excluded[0]), HasSubstr("weight 1e+12"));
  all[2].weight = 1e9;
  EXPECT_THAT(reduced(all).excluded, IsEmpty());
}

TEST(Guards, AMemberIsNamedOnce) {
  auto all = peers(4, 10, 1.0F);
  all[1].weight = 1e30;
  all[1].values[3] = std::nanf("");
  auto outcome = reduced(all);
  ASSERT_EQ(outcome.excluded.size(), 1U);
  EXPECT_EQ(outcome.excluded[0].reason, ec::non_finite);
}

} // namespace
} // namespace waggle
