#include "runtime/averaging/kernels.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/codec/sums.hpp"
#include "runtime/core/random.hpp"

namespace waggle {
namespace {

/// Values of mixed sizes, with ties and both zeros.
struct rows_of_values {
  std::vector<std::vector<float>> values;
  std::vector<const float*> rows;
  std::vector<double> weights;
  std::vector<std::int32_t> shares;
  std::size_t n;

  rows_of_values(random_source& random, std::size_t count, std::size_t size) : n(size) {
    for (std::size_t i = 0; i < count; ++i) {
      auto& row = values.emplace_back(n);
      for (auto& x : row) {
        auto kind = random.below(8);
        x = kind == 0   ? 0.0F
            : kind == 1 ? -0.0F
            : kind == 2
              ? static_cast<float>(random.below(3))
              : static_cast<float>((random.unit() - 0.5)
                                   * std::ldexp(1.0, static_cast<int>(random.below(60)) - 30));
      }
      weights.push_back(random.unit() + 0.01);
      shares.push_back(static_cast<std::int32_t>(1 + random.below(1U << 23U)));
    }
    for (const auto& row : values)
      rows.push_back(row.data());
  }
};

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Kernels, BothPathsGiveTheSameBits) {
  if (best_instructions() == instructions::portable)
    GTEST_SKIP() << "this processor has one path only";
  constexpr auto slow = instructions::portable;
  constexpr auto fast = instructions::avx2;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    random_source random{seed};
    auto count = 1 + random.below(seed % 10 == 0 ? 64 : 12);
    rows_of_values in{random, count, 1 + random.below(seed % 10 == 0 ? 3'000 : 100)};
    std::vector<float> a(in.n);
    std::vector<float> b(in.n);
    EXPECT_EQ(kernels::weighted_sum(slow, in.rows, in.weights.data(), 0.7, a.data(), in.n),
              kernels::weighted_sum(fast, in.rows, in.weights.data(), 0.7, b.data(), in.n));
    EXPECT_TRUE(same(a, b));
    kernels::weighted_sum(slow, in.rows, in.weights.data(), 0.7, a.data(), in.n, true);
    kernels::weighted_sum(fast, in.rows, in.weights.data(), 0.7, b.data(), in.n, true);
    EXPECT_TRUE(same(a, b));
    kernels::median(slow, in.rows, in.shares.data(), a.data(), in.n);
    kernels::median(fast, in.rows, in.shares.data(), b.data(), in.n);
    EXPECT_TRUE(same(a, b));
    kernels::pull(slow, in.rows, in.weights.data(), a.data(), in.n);
    kernels::pull(fast, in.rows, in.weights.data(), b.data(), in.n);
    EXPECT_TRUE(same(a, b));
    auto trim = random.below((count + 1) / 2);
    kernels::trimmed_mean(slow, in.rows, in.weights.data(), trim, a.data(), in.n);
    kernels::trimmed_mean(fast, in.rows, in.weights.data(), trim, b.data(), in.n);
    EXPECT_TRUE(same(a, b));
  }
}

/// The sum in the order that the format prescribes.
template <class Term>
double in_lanes(std::size_t n, Term term) {
  std::vector<double> lanes(16);
  for (std::size_t i = 0; i < n; ++i)
    lanes[i % 16] += term(i);
  for (; lanes.size() > 1; lanes.resize(lanes.size() / 2))
    for (std::size_t i = 0; i < lanes.size() / 2; ++i)
      lanes[i] += lanes[lanes.size() / 2 + i];
  return lanes[0];
}

TEST(Kernels, SumsAreInTheOrderOfTheFormat) {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    random_source random{seed};
    rows_of_values in{random, 2, 1 + random.below(seed % 10 == 0 ? 3'000 : 100)};
    const auto* a = in.rows[0];
    const auto* b = in.rows[1];
    auto squared = [](double x) { return x * x; };
    EXPECT_EQ(codecs::lane_sum(a, in.n),
              in_lanes(in.n, [&](std::size_t i) { return double{a[i]}; }));
    EXPECT_EQ(codecs::lane_sum_of_squares(a, in.n, 0.25),
              in_lanes(in.n, [&](std::size_t i) { return squared(double{a[i]} - 0.25); }));
    EXPECT_EQ(codecs::lane_sum_of_squared_distances(a, b, in.n),
              in_lanes(in.n, [&](std::size_t i) { return squared(double{a[i]} - double{b[i]}); }));
  }
}

TEST(Kernels, AWeightedSumReturnsItsLargestMagnitude) {
  std::vector<float> x(50, 1.0F);
  std::vector<const float*> rows{x.data()};
  double weight = 1;
  std::vector<float> out(50);
  for (std::size_t at : {0U, 15U, 16U, 49U}) {
    x[at] = -7.5F;
    EXPECT_EQ(kernels::weighted_sum(best_instructions(), rows, &weight, 1, out.data(), 50),
              std::bit_cast<std::uint32_t>(7.5F));
    x[at] = std::nanf("");
    EXPECT_GT(kernels::weighted_sum(best_instructions(), rows, &weight, 1, out.data(), 50),
              0x7f800000U);
    x[at] = 1;
  }
}

} // namespace
} // namespace waggle
