#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/averaging/part_table.hpp"
#include "runtime/codec/exact_number.hpp"
#include "tests/runtime/averaging/plans.hpp"

// What a round makes of numbers that it must not average: a learning rate, a count of batches.
namespace waggle {
namespace {

using numbers = std::vector<std::optional<double>>;

payload written(const numbers& all) {
  std::vector<float> values(all.size() * exact_values);
  for (std::size_t i = 0; i < all.size(); ++i)
    write_exact(all[i], std::span{values}.subspan(i * exact_values).first<exact_values>());
  return copy_to_payload(std::as_bytes(std::span{values}));
}

struct given {
  double weight;
  numbers wishes;
};

numbers settled(codec_id codec, const std::vector<given>& all, aggregation how = {},
                std::vector<outlier>* excluded = nullptr) {
  auto count = static_cast<std::uint32_t>(all.front().wishes.size() * exact_values);
  part_reducer reducer{codec, count, how};
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(reducer.add(i, all[i].weight, written(all[i].wishes)).ok());
  std::vector<float> out(count);
  auto outcome = reducer.reduce(reducer.present(), out);
  if (excluded != nullptr)
    *excluded = outcome.excluded;
  numbers found;
  for (std::size_t i = 0; i < out.size(); i += exact_values)
    found.push_back(read_exact(std::span{out}.subspan(i).first<exact_values>()));
  return found;
}

TEST(ExactNumbers, TravelBitByBit) {
  for (double x : {0.1, 1.0 / 3, 1e-8, -2.5, 0.0, 1e30, 9007199254740991.0, 5e-7 * M_PI}) {
    std::array<float, exact_values> values{};
    write_exact(x, values);
    EXPECT_EQ(read_exact(values), x);
  }
  std::array<float, exact_values> values{};
  write_exact(std::nullopt, values);
  EXPECT_EQ(read_exact(values), std::nullopt);
  write_exact(1e300, values);
  EXPECT_TRUE(read_exact(values) && std::isfinite(*read_exact(values)));
}

TEST(ExactNumbers, ManyTravelAsEachAlone) {
  constexpr double huge = std::numeric_limits<double>::max();
  for (std::size_t n : {0, 1, 3, 7, 8, 500, 4'099}) {
    std::vector<double> all(n);
    for (std::size_t i = 0; i < n; ++i)
      all[i] = std::sin(static_cast<double>(i)) * std::pow(10.0, static_cast<double>(i % 60) - 30);
    if (n > 3)
      all[1] = 1e300, all[2] = -huge;
    std::vector<float> together(exact_values * n), alone(exact_values * n);
    write_exact(all.data(), n, together.data());
    for (std::size_t i = 0; i < n; ++i)
      write_exact(all[i], std::span{alone}.subspan(i * exact_values).first<exact_values>());
    EXPECT_EQ(together, alone);
    std::vector<double> back(n);
    if (n > 3)
      together[9] = missing_number;
    EXPECT_EQ(read_exact(together.data(), n, back.data()), 0U);
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_EQ(
        back[i],
        read_exact(
          std::span{std::as_const(together)}.subspan(i * exact_values).first<exact_values>())
          .value_or(0));
    if (n > 3) {
      together[4] = std::numeric_limits<float>::quiet_NaN();
      together[exact_values * n - 1] = -std::numeric_limits<float>::infinity();
      EXPECT_EQ(read_exact(together.data(), n, back.data()), 2U);
    }
  }
}

TEST(SettledNumbers, AMeanOfEqualOnesIsThatOneWhateverTheWeights) {
  EXPECT_EQ(settled(codec_id::mean64, {{1, {0.1, 7}}, {3, {0.1, 8}}, {7, {0.1, 9}}}).front(), 0.1);
}

TEST(SettledNumbers, AMeanNamesWhoseNumbersAreNotFinite) {
  part_reducer reducer{codec_id::mean64, 3 * 600, {}};
  for (std::size_t member = 0; member < 3; ++member) {
    std::vector<float> values(3 * 600, 1);
    if (member == 1)
      values[3 * 590 + 2] = std::nanf("");
    ASSERT_TRUE(reducer.add(member, 1, copy_to_payload(std::as_bytes(std::span{values}))));
  }
  std::vector<float> out(3 * 600);
  auto outcome = reducer.reduce(reducer.present(), out);
  ASSERT_EQ(outcome.excluded.size(), 1U);
  EXPECT_EQ(outcome.excluded[0].member, 1U);
}

TEST(SettledNumbers, OfTwoTheLowerCountsBitByBit) {
  EXPECT_EQ(settled(codec_id::median64, {{4, {0.1}}, {4, {1.0 / 3}}}), numbers{0.1});
  EXPECT_EQ(settled(codec_id::median64, {{4, {1.0 / 3}}, {4, {0.1}}}), numbers{0.1});
}

TEST(SettledNumbers, AMedianWeighsBySamplesAndTakesEachNumberByItself) {
  EXPECT_EQ(settled(codec_id::median64, {{1, {0.1, 5}}, {1, {0.2, 4}}, {1, {0.3, 6}}}),
            (numbers{0.2, 5}));
  EXPECT_EQ(settled(codec_id::median64, {{1, {0.1}}, {1, {0.2}}, {5, {0.3}}}), numbers{0.3});
  EXPECT_EQ(settled(codec_id::median64, {{9, {0.1}}, {0, {0.2}}, {0, {0.3}}}), numbers{0.1});
}

TEST(SettledNumbers, WhoHasNoWishHasNoVoice) {
  EXPECT_EQ(
    settled(codec_id::median64, {{9, {std::nullopt}}, {1, {0.2}}, {9, {std::nullopt}}, {1, {0.3}}}),
    numbers{0.2});
  EXPECT_EQ(settled(codec_id::median64, {{1, {std::nullopt}}, {1, {std::nullopt}}}),
            numbers{std::nullopt});
}

TEST(SettledNumbers, OfCountersTheLargestCounts) {
  EXPECT_EQ(
    settled(codec_id::largest64, {{5, {-3, 7}}, {1, {-2, 9007199254740991.0}}, {1, {-9, 0}}}),
    (numbers{-2, 9007199254740991.0}));
}

TEST(SettledNumbers, AWeightedMeanIsOfDoubles) {
  EXPECT_EQ(settled(codec_id::mean64, {{1, {0.1, 1e30}}, {3, {0.3, 3}}}),
            (numbers{(0.1 + 3 * 0.3) / 4, (1e30 + 3 * 3.0) / 4}));
  EXPECT_EQ(
    settled(codec_id::mean64, {{1, {0.1}}, {1, {1e30}}, {1, {0.2}}}, {aggregator::median, 1}),
    numbers{0.2})
    << "a robust aggregator takes the median";
}

TEST(SettledNumbers, ARobustAggregatorCapsTheWeightThatALiarClaims) {
  aggregation robust{aggregator::median, 1};
  EXPECT_EQ(settled(codec_id::median64, {{1e6, {1e9}}, {1, {0.1}}, {1, {0.1}}}, robust),
            numbers{0.1});
}

TEST(SettledNumbers, ValuesThatAreNotFiniteAreTracedToTheirSender) {
  std::vector<outlier> excluded;
  part_reducer reducer{codec_id::median64, exact_values};
  ASSERT_TRUE(reducer.add(0, 1, written({0.1})).ok());
  std::vector<float> bad{std::numeric_limits<float>::quiet_NaN(), 0, 0};
  ASSERT_TRUE(reducer.add(1, 1, copy_to_payload(std::as_bytes(std::span{bad}))).ok());
  std::vector<float> out(exact_values);
  auto outcome = reducer.reduce(reducer.present(), out);
  ASSERT_EQ(outcome.excluded.size(), 1U);
  EXPECT_EQ(outcome.excluded.front().member, 1U);
  EXPECT_EQ(outcome.excluded.front().reason, ec::non_finite);
}

round_plan plan_with(codec_plan codecs, std::vector<std::uint64_t> shares) {
  auto plan = plan_for(shares.size(), 1, 4);
  plan.elements = elements_of(codecs);
  plan.codecs = std::move(codecs);
  plan.shares = std::move(shares);
  return plan;
}

TEST(SettledNumbers, ARunOfThemIsOnePartWhereverSharesEnd) {
  auto plan =
    plan_with({{5, codec_id::none}, {9, codec_id::median64}, {4, codec_id::none}}, {6, 6, 6});
  ASSERT_TRUE(validate_plan(plan).ok());
  part_table table{plan};
  std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> parts;
  for (std::size_t i = 0; i < table.size(); ++i)
    parts.emplace_back(table[i].offset, table[i].count, table[i].default_owner);
  EXPECT_THAT(parts, ::testing::ElementsAre(std::tuple{0U, 4U, 0U}, std::tuple{4U, 1U, 0U},
                                            std::tuple{5U, 9U, 0U}, std::tuple{14U, 4U, 2U}));
}

TEST(SettledNumbers, APlanWhoseNumbersAreCutOrTooManyIsRefused) {
  EXPECT_FALSE(validate_plan(plan_with({{8, codec_id::median64}}, {4, 4})).ok());
  EXPECT_FALSE(
    validate_plan(plan_with({{whole_run_max + 3, codec_id::largest64}}, {whole_run_max + 3, 0}))
      .ok());
}

} // namespace
} // namespace waggle
