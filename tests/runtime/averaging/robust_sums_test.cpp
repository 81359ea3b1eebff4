#include "runtime/averaging/robust_sums.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/codec/half.hpp"
#include "runtime/core/random.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle {
namespace {

using vectors = std::vector<std::vector<float>>;

constexpr aggregator robust[] = {aggregator::trimmed_mean, aggregator::median,
                                 aggregator::centered_clip, aggregator::krum,
                                 aggregator::median_norm};

payload encoded(codec_id codec, const std::vector<float>& values) {
  std::vector<std::byte> bytes(encoded_size(codec, values.size()));
  encode(codec, values, bytes);
  return copy_to_payload(bytes);
}

/// The aggregate of all `values`, which are added in `order`.
std::vector<float> reduced(const aggregation& how, const vectors& values,
                           const std::vector<double>& weights, codec_id codec = codec_id::none,
                           std::vector<std::size_t> order = {}) {
  if (order.empty()) {
    order.resize(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
  }
  auto n = values.front().size();
  part_reducer reducer{codec, static_cast<std::uint32_t>(n), how};
  for (auto i : order)
    EXPECT_TRUE(reducer.add(i, weights[i], encoded(codec, values[i])));
  std::vector<float> out(n);
  auto outcome = reducer.reduce(member_set::first(values.size()), out);
  EXPECT_TRUE(outcome.excluded.empty());
  EXPECT_EQ(outcome.weight_sum, std::accumulate(weights.begin(), weights.end(), 0.0));
  return out;
}

std::vector<float> reduced(const aggregation& how, const vectors& values) {
  return reduced(how, values, std::vector<double>(values.size(), 1.0));
}

bool same_bytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double normal(random_source& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i)
    sum += random.unit();
  return sum;
}

vectors noisy(random_source& random, std::size_t count, std::size_t n, double centre = 1.0) {
  vectors out(count, std::vector<float>(n));
  for (auto& row : out)
    for (auto& x : row)
      x = static_cast<float>(centre + normal(random));
  return out;
}

std::vector<double> random_weights(random_source& random, std::size_t count) {
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(std::ldexp(1.0, -static_cast<int>(random.below(3))));
  return out;
}

// -- the definitions, restated directly -----------------------------------------------------------

std::vector<double> naive_caps(std::vector<double> weights) {
  auto sorted = weights;
  std::sort(sorted.begin(), sorted.end());
  for (auto& w : weights)
    w = std::min(w, sorted[(sorted.size() - 1) / 2]);
  return weights;
}

double naive_median(std::vector<std::pair<float, double>> all) {
  std::sort(all.begin(), all.end());
  double total = 0;
  for (auto& [x, w] : all)
    total += w;
  double through = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    through += all[i].second;
    if (through == total / 2)
      return (static_cast<double>(all[i].first) + static_cast<double>(all[i + 1].first)) / 2;
    if (through > total / 2)
      return static_cast<double>(all[i].first);
  }
  return std::nan("");
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e)
    sum += (a[e] - b[e]) * (a[e] - b[e]);
  return std::sqrt(sum);
}

std::vector<double> naive(const aggregation& how, const vectors& values,
                          const std::vector<double>& weights) {
  auto count = values.size();
  auto n = values.front().size();
  auto caps = naive_caps(weights);
  std::vector<std::vector<double>> wide;
  for (const auto& row : values)
    wide.emplace_back(row.begin(), row.end());
  std::vector<double> out(n, 0.0);
  for (std::size_t e = 0; e < n; ++e) {
    std::vector<std::pair<float, double>> column;
    for (std::size_t i = 0; i < count; ++i)
      column.emplace_back(values[i][e], how.how == aggregator::centered_clip ? 1.0 : caps[i]);
    out[e] = naive_median(column);
    if (how.how != aggregator::trimmed_mean)
      continue;
    std::sort(column.begin(), column.end());
    double sum = 0;
    double total = 0;
    for (std::size_t i = how.faulty_max; i + how.faulty_max < count; ++i) {
      sum += column[i].second * static_cast<double>(column[i].first);
      total += column[i].second;
    }
    out[e] = sum / total;
  }
  if (how.how == aggregator::centered_clip) {
    auto radius = std::numeric_limits<double>::infinity();
    for (int step = 0; step < 3; ++step) {
      std::vector<double> distances;
      for (const auto& row : wide)
        distances.push_back(distance(row, out));
      auto sorted = distances;
      std::sort(sorted.begin(), sorted.end());
      radius = std::min(radius, sorted[(count - 1) / 2]);
      auto centre = out;
      auto total = std::accumulate(caps.begin(), caps.end(), 0.0);
      for (std::size_t i = 0; i < count; ++i)
        for (std::size_t e = 0; e < n; ++e)
          out[e] += caps[i] / total * std::min(1.0, radius / std::max(distances[i], 1e-300))
                    * (wide[i][e] - centre[e]);
    }
  }
  if (how.how == aggregator::median_norm) {
    std::vector<double> lengths;
    for (const auto& row : wide)
      lengths.push_back(distance(row, std::vector<double>(n, 0.0)));
    auto sorted = lengths;
    std::sort(sorted.begin(), sorted.end());
    auto total = std::accumulate(caps.begin(), caps.end(), 0.0);
    out.assign(n, 0.0);
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t e = 0; e < n; ++e)
        out[e] +=
          caps[i] / total * std::min(1.0, sorted[(count - 1) / 2] / lengths[i]) * wide[i][e];
  }
  if (how.how == aggregator::krum) {
    std::vector<std::pair<double, std::size_t>> scores;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> near;
      for (std::size_t j = 0; j < count; ++j)
        if (j != i)
          near.push_back(std::pow(distance(wide[i], wide[j]), 2));
      std::sort(near.begin(), near.end());
      near.resize(count - how.faulty_max - 2);
      scores.emplace_back(std::accumulate(near.begin(), near.end(), 0.0), i);
    }
    std::sort(scores.begin(), scores.end());
    out.assign(n, 0.0);
    double total = 0;
    for (std::size_t k = 0; k < count - how.faulty_max; ++k) {
      auto i = scores[k].second;
      total += caps[i];
      for (std::size_t e = 0; e < n; ++e)
        out[e] += caps[i] * wide[i][e];
    }
    for (auto& x : out)
      x /= total;
  }
  return out;
}

// -- tests ---------------------------------------------------------------------------------------

TEST(RobustSums, TheyAreWhatTheirDefinitionsSay) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    random_source random{seed};
    auto faulty = 1 + static_cast<std::uint32_t>(random.below(3));
    auto count = 2 * faulty + 3 + random.below(5);
    auto values = noisy(random, count, 1 + random.below(1'200));
    auto weights = random_weights(random, count);
    if (seed % 5 == 0) // ties
      for (auto& row : values)
        for (auto& x : row)
          x = std::round(x);
    for (auto how : robust) {
      auto got = reduced({how, faulty}, values, weights);
      auto want = naive({how, faulty}, values, weights);
      // Among tied values it does not matter which is trimmed, but their weights differ.
      if (how == aggregator::trimmed_mean && seed % 5 == 0)
        continue;
      for (std::size_t e = 0; e < got.size(); ++e)
        ASSERT_NEAR(static_cast<double>(got[e]), want[e], 1e-6 * (1 + std::abs(want[e])))
          << "seed " << seed << " " << to_string(how) << " value " << e;
    }
  }
}

TEST(RobustSums, TheOrderOfArrivalChangesNoByteWithAnyCodec) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    random_source random{seed};
    auto count = 5 + random.below(6);
    auto values = noisy(random, count, 1 + random.below(3'000));
    auto weights = random_weights(random, count);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (auto codec : all_codecs())
      for (auto how : robust) {
        auto first = reduced({how, 1}, values, weights, codec);
        random.shuffle(order);
        EXPECT_TRUE(same_bytes(first, reduced({how, 1}, values, weights, codec, order)))
          << "seed " << seed << " " << to_string(how) << " " << to_string(codec);
      }
  }
}

TEST(RobustSums, EncodedContributionsCountAsWhatTheyDecodeTo) {
  random_source random{5};
  auto values = noisy(random, 7, 5'000);
  std::vector<double> weights(7, 1.0);
  for (auto codec : all_codecs()) {
    vectors decoded;
    for (const auto& row : values) {
      auto& back = decoded.emplace_back(row.size());
      ASSERT_TRUE(decode(codec, encoded(codec, row).view(), back));
    }
    auto mean = reduced({}, decoded, weights);
    bool sixteen_bits = codec == codec_id::float16 || codec == codec_id::bfloat16;
    for (std::size_t e = 0; sixteen_bits && e < mean.size(); ++e) { // it will be rounded again
      double sum = 0;
      for (const auto& row : decoded)
        sum += static_cast<double>(row[e]);
      mean[e] = codecs::to_odd(sum * (1.0 / 7));
    }
    EXPECT_TRUE(same_bytes(reduced({}, values, weights, codec), mean)) << to_string(codec);
    for (auto how : {aggregation{aggregator::trimmed_mean, 2}, aggregation{aggregator::median, 0},
                     aggregation{aggregator::centered_clip, 0}, aggregation{aggregator::krum, 2}})
      EXPECT_TRUE(same_bytes(reduced(how, values, weights, codec), reduced(how, decoded, weights)))
        << to_string(how.how) << " " << to_string(codec);
  }
}

TEST(RobustSums, WithAtMostFaultyMaxByzantineEveryValueLiesBetweenHonestOnes) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    random_source random{seed};
    auto faulty = 1 + random.below(4);
    auto count = 2 * faulty + 1 + random.below(4);
    auto n = 1 + random.below(700);
    auto values = noisy(random, count, n);
    std::vector<std::size_t> members(count);
    std::iota(members.begin(), members.end(), std::size_t{0});
    random.shuffle(members);
    // All Byzantine peers send the same huge, tiny or random value, and claim the largest weight.
    auto lie = std::pow(10.0, 12 * random.unit() - 7) * (random.below(2) == 0 ? 1 : -1);
    std::vector<double> weights(count, 1.0);
    for (std::size_t k = 0; k < faulty; ++k) {
      weights[members[k]] = random.below(2) == 0 ? 1e6 : 1.0;
      for (auto& x : values[members[k]])
        x = static_cast<float>(seed % 3 == 0 ? lie * normal(random) : lie);
    }
    for (auto how : {aggregator::trimmed_mean, aggregator::median}) {
      auto out = reduced({how, static_cast<std::uint32_t>(faulty)}, values, weights);
      for (std::size_t e = 0; e < n; ++e) {
        auto least = std::numeric_limits<float>::max();
        auto most = -least;
        for (std::size_t k = faulty; k < count; ++k) {
          least = std::min(least, values[members[k]][e]);
          most = std::max(most, values[members[k]][e]);
        }
        ASSERT_GE(out[e], least) << "seed " << seed << " " << to_string(how);
        ASSERT_LE(out[e], most) << "seed " << seed << " " << to_string(how);
      }
    }
  }
}

TEST(RobustSums, FarOutliersMoveTheCentreByLessThanAnHonestPeersDistance) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    random_source random{seed};
    auto values = noisy(random, 10, 400);
    std::vector<double> honest(400, 0.0);
    double away = 0;
    for (std::size_t i = 3; i < 10; ++i)
      for (std::size_t e = 0; e < 400; ++e)
        honest[e] += static_cast<double>(values[i][e]) / 7;
    for (std::size_t i = 3; i < 10; ++i)
      away = std::max(away, distance({values[i].begin(), values[i].end()}, honest));
    for (float lie : {50.0F, -3e3F, 9e5F}) {
      for (std::size_t i = 0; i < 3; ++i)
        std::fill(values[i].begin(), values[i].end(), lie);
      for (auto how : {aggregator::centered_clip, aggregator::krum}) {
        auto out = reduced({how, 3}, values);
        EXPECT_LT(distance({out.begin(), out.end()}, honest), away)
          << "seed " << seed << " " << to_string(how) << " " << lie;
      }
    }
  }
}

/// Without a bound on what weights do, two of five win: by capped weight they are two thirds.
TEST(RobustSums, CentredClippingStaysNearTheHonestValuesWhateverWeightsAreClaimed) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    random_source random{seed};
    auto faulty = 1 + random.below(4);
    auto count = 2 * faulty + 1 + random.below(3);
    auto n = 1 + random.below(600);
    auto values = noisy(random, count, n);
    std::vector<double> weights(count, 1.0);
    for (std::size_t i = 0; i < count; ++i)
      weights[i] = i < faulty ? 1e3 : 1.0;
    // The honest contributor with most samples makes the claimed weights the median of all.
    weights[count - 1] = 1e3;
    auto lie = static_cast<float>(std::pow(10.0, 6 * random.unit()));
    for (std::size_t i = 0; i < faulty; ++i)
      std::fill(values[i].begin(), values[i].end(), lie);
    std::vector<double> start(n);
    for (std::size_t e = 0; e < n; ++e) {
      std::vector<std::pair<float, double>> column;
      for (const auto& row : values)
        column.emplace_back(row[e], 1.0);
      start[e] = naive_median(column);
    }
    double most = 0; // D
    for (std::size_t i = faulty; i < count; ++i)
      most = std::max(most, distance({values[i].begin(), values[i].end()}, start));
    auto out =
      reduced({aggregator::centered_clip, static_cast<std::uint32_t>(faulty)}, values, weights);
    EXPECT_LE(distance({out.begin(), out.end()}, start), 3 * most * 1.0001)
      << "seed " << seed << ": " << faulty << " of " << count << " sent " << lie;
  }
}

TEST(RobustSums, KrumIsTheMeanOfTheOthersWhenByzantinePeersAreOutliers) {
  random_source random{9};
  auto values = noisy(random, 10, 600);
  for (std::size_t i : {1U, 4U, 9U})
    for (auto& x : values[i])
      x = -100 * x;
  part_reducer mean{codec_id::none, 600};
  for (std::size_t i = 0; i < 10; ++i)
    ASSERT_TRUE(mean.add(i, 1, encoded(codec_id::none, values[i])));
  std::vector<float> honest(600);
  (void)mean.reduce(members_of({0, 2, 3, 5, 6, 7, 8}), honest);
  EXPECT_TRUE(same_bytes(reduced({aggregator::krum, 3}, values), honest));
}

TEST(RobustSums, ContributionsAreShortenedToTheMedianLength) {
  vectors values{{3, 4}, {0, 5e6F}, {-5, 0}, {0, 0}, {1, 0}}; // lengths 5, 5e6, 5, 0, 1
  auto out = reduced({aggregator::median_norm, 0}, values);
  EXPECT_FLOAT_EQ(out[0], (3 - 5 + 1) / 5.0F);
  EXPECT_FLOAT_EQ(out[1], (4 + 5) / 5.0F);
  EXPECT_EQ(reduced({aggregator::median_norm, 0}, {{7}, {0}, {0}})[0], 0) << "most are 0";
}

TEST(RobustSums, OneByzantinePeerMoreThanFaultyMaxWins) { // the guarantee is tight
  random_source random{4};
  auto values = noisy(random, 5, 50);
  for (std::size_t i : {0U, 1U, 2U})
    std::fill(values[i].begin(), values[i].end(), 1e5F);
  for (auto how : {aggregation{aggregator::trimmed_mean, 2}, aggregation{aggregator::median, 2}})
    EXPECT_EQ(reduced(how, values)[0], 1e5F) << to_string(how.how);
  std::fill(values[2].begin(), values[2].end(), 0.0F);
  for (auto how : {aggregation{aggregator::trimmed_mean, 2}, aggregation{aggregator::median, 2}})
    EXPECT_LT(reduced(how, values)[0], 10.0F) << to_string(how.how);
}

TEST(RobustSums, ScaledContributionsGiveTheScaledResultToTheBit) {
  random_source random{8};
  auto values = noisy(random, 9, 1'500);
  auto weights = random_weights(random, 9);
  for (auto how : robust) {
    auto plain = reduced({how, 2}, values, weights);
    for (float factor : {-4.0F, 0.125F, 1024.0F}) {
      auto scaled = values;
      for (auto& row : scaled)
        for (auto& x : row)
          x *= factor;
      auto want = plain;
      for (auto& x : want)
        x *= factor;
      // A negative factor reverses the order; no two values of this data are equal.
      EXPECT_TRUE(same_bytes(reduced({how, 2}, scaled, weights), want))
        << to_string(how) << " " << factor;
    }
  }
}

TEST(RobustSums, EqualContributionsAreTheirResult) {
  random_source random{2};
  auto one = noisy(random, 1, 777)[0];
  for (auto how : robust)
    for (std::size_t count : {1U, 2U, 5U, 64U}) {
      vectors values(count, one);
      auto out = reduced({how, 1}, values, random_weights(random, count));
      EXPECT_EQ(out, one) << to_string(how) << " of " << count;
    }
}

TEST(RobustSums, TheMedianOfAnEvenNumberIsTheMiddle) {
  EXPECT_EQ(reduced({aggregator::median, 0}, {{1}, {100}, {3}, {2}}), (std::vector<float>{2.5F}));
  EXPECT_EQ(reduced({aggregator::median, 0}, {{1}, {3}}), (std::vector<float>{2}));
  // With fewer contributors than the guarantee needs, the other aggregators use the median, too.
  EXPECT_EQ(reduced({aggregator::trimmed_mean, 2}, {{1}, {100}, {3}, {2}}),
            (std::vector<float>{2.5F}));
  EXPECT_EQ(reduced({aggregator::krum, 1}, {{1}, {100}, {3}, {2}}), (std::vector<float>{2.5F}));
}

TEST(RobustSums, SmallWeightsCountForLessAndLargeOnesForTheMedianWeight) {
  // The value 1 has half of the others' weight, so it does not count for the middle.
  EXPECT_EQ(reduced({aggregator::median, 0}, {{1}, {5}, {9}, {9}}, {1, 2, 2, 2})[0], 9.0F);
  EXPECT_EQ(reduced({aggregator::median, 0}, {{1}, {5}, {9}}, {1, 1e6, 1})[0], 5.0F);
  EXPECT_EQ(reduced({aggregator::median, 0}, {{1e4F}, {5}, {9}}, {1e8, 1, 1})[0], 9.0F);
  EXPECT_EQ(reduced({aggregator::trimmed_mean, 1}, {{0}, {1}, {3}, {4}}, {1, 1, 1e8, 1})[0], 2.0F);
}

TEST(RobustSums, WithFaultyMaxZeroTheyAreTheMeanBitForBit) {
  random_source random{6};
  auto values = noisy(random, 6, 900);
  values[0][0] = values[1][0] = values[2][0] = -0.0F;
  values[3][0] = values[4][0] = values[5][0] = -0.0F;
  auto weights = random_weights(random, 6);
  auto mean = reduced({}, values, weights);
  EXPECT_TRUE(same_bytes(reduced({aggregator::trimmed_mean, 0}, values, weights), mean));
  EXPECT_TRUE(same_bytes(reduced({aggregator::krum, 0}, values, weights), mean));
}

TEST(RobustSums, AWeightOfZeroChangesNoBit) {
  random_source random{3};
  auto values = noisy(random, 7, 300);
  values[2].assign(300, std::nanf(""));
  for (auto how : robust) {
    part_reducer with{codec_id::none, 300, {how, 1}};
    part_reducer without{codec_id::none, 300, {how, 1}};
    for (std::size_t i = 0; i < 7; ++i) {
      ASSERT_TRUE(with.add(i, i == 2 ? 0 : 1, encoded(codec_id::none, values[i])));
      if (i != 2) {
        ASSERT_TRUE(without.add(i, 1, encoded(codec_id::none, values[i])));
      }
    }
    std::vector<float> x(300);
    std::vector<float> y(300);
    EXPECT_TRUE(poisoned(with.reduce(member_set::first(7), x)).empty());
    (void)without.reduce(without.present(), y);
    EXPECT_TRUE(same_bytes(x, y)) << to_string(how);
  }
}

TEST(RobustSums, APoisonedContributionIsNamedThoughTheResultWouldHideIt) {
  for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
    for (auto codec : all_codecs())
      for (auto how : robust)
        for (std::size_t at : {0U, 511U, 512U, 1'999U}) {
          random_source random{1};
          auto values = noisy(random, 7, 2'000);
          values[5][at] = bad;
          part_reducer reducer{codec, 2'000, {how, 2}};
          for (std::size_t i = 0; i < 7; ++i)
            ASSERT_TRUE(reducer.add(i, 1, encoded(codec, values[i])));
          std::vector<float> out(2'000);
          EXPECT_EQ(poisoned(reducer.reduce(member_set::first(7), out)), members_of({5}))
            << to_string(how) << " " << to_string(codec) << " " << at;
          EXPECT_TRUE(poisoned(reducer.reduce(members_of({0, 1, 2, 3, 4, 6}), out)).empty());
          EXPECT_TRUE(all_finite(out));
        }
}

} // namespace
} // namespace waggle
