#include "runtime/averaging/partition.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/core/random.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle {
namespace {

using testing::Each, testing::ElementsAre;

constexpr double fast = 12e6;    // 100 Mbit/s
constexpr double slow = 3e6;     // 25 Mbit/s
constexpr auto mebi = 1U << 20U; // values; 4 MiB
constexpr std::uint32_t whole = part_size{}.largest;

round_plan round_of(std::size_t members, std::uint64_t elements, codec_id codec = codec_id::none) {
  auto plan = plan_for(members);
  plan.elements = elements;
  plan.codecs = {{elements, codec}};
  return plan;
}

vector_partition partitioned(const round_plan& plan, const member_bandwidths& bandwidths,
                             const part_size& parts = {}) {
  auto found = make_partition(plan, bandwidths, parts, 0);
  EXPECT_TRUE(found) << to_string(found.error());
  return found ? *found : vector_partition{};
}

/// The extra time due to the size of parts, relative to the time that the slowest link needs
/// anyway.
double excess(const round_plan& plan, const member_bandwidths& bandwidths,
              const vector_partition& how) {
  auto tiny = how;
  tiny.part_elements = 1;
  return transfer_seconds(plan, bandwidths, how) / transfer_seconds(plan, bandwidths, tiny) - 1;
}

TEST(Partition, PartsAreLargeWhereNoBandwidthIsKnown) {
  auto how = partitioned(round_of(4, mebi), {{}, {}, {}, {}});
  EXPECT_EQ(how.part_elements, whole);
  EXPECT_THAT(how.shares, Each(mebi / 4));
}

TEST(Partition, PartsAreLargeForEqualBandwidthsHoweverLow) {
  for (std::size_t members : {2U, 3U, 4U, 8U, 64U})
    for (std::uint64_t elements : {1000U, mebi, 64 * mebi})
      for (double line : {1e4, slow, fast, 1e10})
        EXPECT_EQ(
          partitioned(round_of(members, elements), member_bandwidths(members, line)).part_elements,
          whole)
          << members << " members, " << elements << " values, " << line;
}

TEST(Partition, OneSlowLinkOfFourGetsSmallParts) {
  auto plan = round_of(4, mebi);
  member_bandwidths lines{fast, fast, fast, slow};
  auto how = partitioned(plan, lines);
  EXPECT_EQ(how.shares.back(), 0u);
  EXPECT_EQ(how.part_elements, 16'384u) << "64 KiB";
  EXPECT_LT(excess(plan, lines, how), 1.0 / 16);
  auto large = how;
  large.part_elements = whole;
  // Measured: 1.97 s instead of 1.42 s (tests/bench/RESULTS.md).
  EXPECT_NEAR(excess(plan, lines, large), 0.375, 0.01);
}

TEST(Partition, NearlyEqualBandwidthsGetEqualShares) {
  constexpr std::uint64_t seed = 5;
  SCOPED_TRACE(seed);
  random_source random{seed};
  for (int trial = 0; trial < 100; ++trial) {
    member_bandwidths bandwidths;
    for (int i = 0; i < 4; ++i)
      bandwidths.emplace_back(fast * (0.95 + 0.1 * random.unit()));
    auto how = partitioned(round_of(4, mebi), bandwidths);
    EXPECT_THAT(how.shares, Each(mebi / 4));
    EXPECT_EQ(how.part_elements, whole);
  }
}

TEST(Partition, EachClassOfBandwidthsGetsEqualShares) {
  auto shares = partitioned(round_of(6, mebi), {10.0, 7.0, 9.6, 6.8, 10.4, 2.0}).shares;
  auto apart = [](auto a, auto b) { return a > b ? a - b : b - a; };
  EXPECT_LE(apart(shares[0], shares[2]), 1u);
  EXPECT_LE(apart(shares[0], shares[4]), 1u);
  EXPECT_LE(apart(shares[1], shares[3]), 1u);
  EXPECT_GT(shares[0], shares[1]);
  EXPECT_EQ(shares[5], 0u);
}

member_bandwidth declared(double bytes_per_second) {
  return {bytes_per_second, true};
}

// With these bandwidths the shares are 35, 16 and 9; with a minimum of 10 per reducer, the slowest
// reduces nothing. Treated as equal, the two slower ones would have 13 and 12.
TEST(Partition, DeclaredBandwidthsAreUsedAsTheyAre) {
  auto plan = round_of(3, 60);
  auto exact = make_partition(plan, {declared(0.55), declared(0.44), declared(0.40)}, {}, 10);
  EXPECT_THAT(exact->shares, ElementsAre(41, 19, 0));
  EXPECT_GT(make_partition(plan, {0.55, 0.44, 0.40}, {}, 10)->shares[2], 10U);
}

TEST(Partition, ADeclaredBandwidthDoesNotAffectMeasuredOnes) {
  auto shares = partitioned(round_of(4, mebi), {10.0, 9.6, declared(9.8), declared(9.4)}).shares;
  auto apart = [](auto a, auto b) { return a > b ? a - b : b - a; };
  EXPECT_LE(apart(shares[0], shares[1]), 1u);
  EXPECT_LE(apart(shares[0], shares[2]), 1u) << "9.8 is their mean";
  EXPECT_LT(shares[3] + 1000, shares[2]);
}

TEST(Partition, OneUnknownBandwidthChangesNothing) {
  auto plan = round_of(4, mebi);
  EXPECT_EQ(partitioned(plan, {fast, {}, fast, slow}), partitioned(plan, {fast, fast, {}, slow}));
}

TEST(Partition, LongVectorsKeepLargeParts) {
  EXPECT_EQ(partitioned(round_of(4, 16 * mebi), {fast, fast, fast, slow}).part_elements, whole);
}

TEST(Partition, LinksOfATenthOfAMillisecondKeepLargeParts) {
  EXPECT_EQ(partitioned(round_of(4, mebi), {1e11, 1e11, 1e11, 2.5e10}).part_elements, whole);
}

TEST(Partition, AClientWithAKnownBandwidthGetsSmallParts) {
  auto plan = round_of(2, mebi + 4096);
  plan.members[1].mode = member_mode::client;
  member_bandwidths lines{{}, slow};
  auto how = partitioned(plan, lines);
  EXPECT_THAT(how.shares, ElementsAre(mebi + 4096, 0));
  EXPECT_EQ(how.part_elements, 65'536u);
  EXPECT_LE(excess(plan, lines, how), 1.0 / 16);
}

TEST(Partition, AnAuxiliaryWaitsForNoResults) {
  auto plan = round_of(3, mebi);
  plan.members[2].mode = member_mode::auxiliary;
  EXPECT_EQ(partitioned(plan, {fast, fast, slow / 100}).part_elements, whole);
}

TEST(Partition, AFixedSizeStays) {
  for (std::uint32_t fixed : {5000U, whole})
    EXPECT_EQ(
      partitioned(round_of(4, mebi), {fast, fast, fast, slow}, {fixed, false}).part_elements,
      fixed);
}

TEST(Partition, AggregatorsThatCompareWholePartsKeepThem) {
  for (auto how : {aggregator::mean, aggregator::trimmed_mean, aggregator::median,
                   aggregator::centered_clip, aggregator::krum, aggregator::median_norm}) {
    auto plan = round_of(4, mebi);
    plan.reduce_by = {how, 1};
    bool keeps = !find_row(how)->by_value;
    EXPECT_EQ(partitioned(plan, {fast, fast, fast, slow}).part_elements == whole, keeps)
      << to_string(how);
  }
}

TEST(Partition, PartsAreNeverTooSmallForTheirCodec) {
  for (auto codec : all_codecs()) {
    auto plan = round_of(16, mebi / 16, codec);
    member_bandwidths lines(16, fast);
    lines.back() = 1e4;
    auto how = partitioned(plan, lines);
    EXPECT_EQ(how.part_elements, smallest_part(plan.codecs, {})) << to_string(codec);
    bool largest = how.part_elements == whole; // has fewer bytes with sparse2
    EXPECT_GE(encoded_size(codec, how.part_elements), largest ? 3_KiB : 32_KiB);
    EXPECT_LE(encoded_size(codec, how.part_elements), 34_KiB);
    EXPECT_EQ(how.part_elements % 4096, 0u) << "a block of blockwise8";
  }
}

TEST(Partition, TheNarrowestOfMixedCodecsSetsTheLimit) {
  codec_plan mixed{{100, codec_id::none}, {100, codec_id::uniform8}, {5, codec_id::float16}};
  EXPECT_EQ(smallest_part(mixed, {}), 32'768u);
  EXPECT_EQ(smallest_part(mixed, {1000, true}), 1000u) << "never above the largest";
  EXPECT_EQ(smallest_part(mixed, {1000, false}), 1000u);
}

TEST(Partition, AMemberTakesWhatALeaderMayChoose) {
  codec_plan exact{{mebi, codec_id::none}};
  EXPECT_TRUE(may_be_part(whole, exact, {}));
  EXPECT_TRUE(may_be_part(8192, exact, {}));
  EXPECT_FALSE(may_be_part(8191, exact, {}));
  EXPECT_FALSE(may_be_part(whole + 1, exact, {}));
  EXPECT_FALSE(may_be_part(8192, exact, {whole, false}));
  EXPECT_TRUE(may_be_part(1000, exact, {1000, false}));
}

TEST(Partition, FailsWhereNoMemberMayReduce) {
  EXPECT_EQ(make_partition(round_of(2, 10), {0.0, 0.0}, {}, 0).error().code, ec::bad_config);
}

TEST(Partition, AnyDivisionMakesAValidPlan) {
  constexpr std::uint64_t seed = 20'261'121;
  SCOPED_TRACE(seed);
  random_source random{seed};
  for (int trial = 0; trial < 2000; ++trial) {
    auto members = 2 + random.below(round_members_max - 1);
    auto plan = round_of(members, 1 + random.below(std::uint64_t{1} << random.below(34)),
                         all_codecs()[random.below(all_codecs().size())]);
    member_bandwidths bandwidths;
    for (std::size_t i = 0; i < members; ++i) {
      plan.members[i].mode = static_cast<member_mode>(i == 0 ? 0 : random.below(3));
      auto scale = std::pow(10.0, static_cast<double>(random.below(12)));
      if (random.below(4) > 0)
        bandwidths.emplace_back(i == 0 || random.below(4) > 0 ? scale * 3 : 0);
      else
        bandwidths.emplace_back();
    }
    auto how = partitioned(plan, bandwidths);
    plan.shares = how.shares;
    plan.part_elements = how.part_elements;
    auto valid = validate_plan(plan);
    ASSERT_TRUE(valid) << to_string(valid.error()) << ", trial " << trial;
    EXPECT_TRUE(may_be_part(how.part_elements, plan.codecs, {}));
    EXPECT_EQ(how, partitioned(plan, bandwidths));
  }
}

TEST(Partition, TheMeanDoesNotDependOnThePartSize) {
  constexpr std::size_t elements = 40'000;
  random_source random{7};
  std::vector<std::vector<float>> vectors(3, std::vector<float>(elements));
  for (auto& v : vectors)
    for (auto& x : v)
      x = static_cast<float>(random.unit() * 2 - 1);
  auto reduced = [&](std::uint32_t part_elements) {
    auto plan = round_of(3, elements);
    plan.shares = {elements, 0, 0};
    plan.part_elements = part_elements;
    part_table table{plan};
    std::vector<float> out(elements);
    for (std::size_t p = 0; p < table.size(); ++p) {
      part_reducer reducer{codec_id::none, table[p].count, plan.reduce_by};
      for (std::size_t m = 0; m < vectors.size(); ++m) {
        auto values = std::span{vectors[m]}.subspan(table[p].offset, table[p].count);
        auto added =
          reducer.add(m, 1.0 + static_cast<double>(m), copy_to_payload(std::as_bytes(values)));
        EXPECT_TRUE(added);
      }
      auto done = reducer.reduce(member_set::first(3),
                                 std::span{out}.subspan(table[p].offset, table[p].count));
      EXPECT_TRUE(done.excluded.empty());
    }
    return out;
  };
  auto large = reduced(131'072);
  for (std::uint32_t size : {8192U, 16'384U, 65'536U})
    EXPECT_EQ(reduced(size), large) << size;
}

} // namespace
} // namespace waggle
