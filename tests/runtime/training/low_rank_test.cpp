#include "runtime/training/low_rank.hpp"

#include <cmath>
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/codec/error_feedback.hpp"
#include "runtime/training/matrix_products.hpp"

namespace waggle {
namespace {

using shape = std::vector<std::uint64_t>;
using values = std::vector<float>;

state_table table_of(const std::vector<shape>& shapes) {
  std::vector<state_tensor> tensors;
  for (const auto& s : shapes)
    tensors.push_back({"w" + std::to_string(tensors.size()), s, state_tensor::kind::parameter});
  tensors.push_back({"exp_avg/w0", shapes.front(), state_tensor::kind::statistic});
  return state_table{std::move(tensors)};
}

values random_values(std::size_t n, random_source& random, double scale = 1) {
  values out(n);
  for (auto& x : out)
    x = static_cast<float>(scale * (2 * random.unit() - 1));
  return out;
}

/// Σ of `terms` products of a column and a row.
values of_rank(std::size_t terms, std::size_t rows, std::size_t columns, random_source& random) {
  values out(rows * columns);
  for (std::size_t t = 0; t < terms; ++t) {
    auto left = random_values(rows, random);
    auto right = random_values(columns, random);
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] += left[i / columns] * right[i % columns];
  }
  return out;
}

double length_of(const values& x) {
  double sum = 0;
  for (auto v : x)
    sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

/// Relative to the length of `b`.
double distance(const values& a, const values& b) {
  values difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    difference[i] = a[i] - b[i];
  return length_of(difference) / std::max(length_of(b), 1e-30);
}

void add(std::vector<double>& sum, const values& x, double factor = 1) {
  sum.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    sum[i] += factor * static_cast<double>(x[i]);
}

/// Peers that average their gradients in two rounds.
struct Peers {
  Peers(std::size_t count, const std::vector<shape>& shapes, std::uint32_t rank,
        double least_saving = 0.01) {
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(low_rank::make(table_of(shapes), {rank, least_saving}, "run"));
  }

  /// The weighted mean, in double precision.
  static values mean(const std::vector<values>& vectors, const std::vector<double>& weights) {
    std::vector<double> sum(vectors.front().size());
    double weight = 0;
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      add(sum, vectors[i], weights[i]);
      weight += weights[i];
    }
    values out(sum.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(sum[i] / weight);
    return out;
  }

  struct under_way {
    values first;
    std::vector<values> second; // of each peer
  };
  under_way both_vectors(const std::vector<values>& gradients, const std::vector<double>& weights) {
    under_way out;
    std::vector<values> first;
    for (std::size_t i = 0; i < all.size(); ++i) {
      first.emplace_back(elements_of(all[i]->first_tensors()));
      all[i]->write_first(gradients[i], first.back());
    }
    out.first = mean(first, weights);
    for (std::size_t i = 0; i < all.size(); ++i) {
      out.second.emplace_back(elements_of(all[i]->second_tensors()));
      all[i]->write_second(gradients[i], out.first, out.second.back());
    }
    return out;
  }

  /// The results of all peers, which are equal.
  values round(const std::vector<values>& gradients, std::vector<double> weights = {}) {
    if (weights.empty())
      weights.assign(all.size(), 1);
    auto sent = both_vectors(gradients, weights);
    auto mean_of_second = mean(sent.second, weights);
    std::optional<values> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
      values mine(gradients[i].size());
      auto carried =
        weights[i] > 0 ? std::span<const float>{sent.second[i]} : std::span<const float>{};
      all[i]->finish(gradients[i], mean_of_second, carried, mine);
      all[i]->commit();
      if (result) {
        EXPECT_EQ(mine, *result) << "peer " << i;
      }
      result = mine;
      EXPECT_TRUE(
        std::equal(all[i]->factors().begin(), all[i]->factors().end(), all[0]->factors().begin()));
    }
    return *result;
  }

  std::vector<std::shared_ptr<low_rank>> all;
};

TEST(Flattened, MergesTheAdjacentAxesWithTheSmallestProduct) {
  EXPECT_EQ(flattened(shape{32, 32, 32}), (matrix_shape{1024, 32}));
  EXPECT_EQ(flattened(shape{64, 3, 7, 7}), (matrix_shape{64, 147}));
  EXPECT_EQ(flattened(shape{512, 512, 3, 3}), (matrix_shape{512, 4608}));
  EXPECT_EQ(flattened(shape{5, 7}), (matrix_shape{5, 7}));
  EXPECT_EQ(flattened(shape{2, 100, 3}), (matrix_shape{200, 3}));
}

TEST(IsCompressed, OnlyWhatSavesEnough) {
  EXPECT_TRUE(is_compressed(shape{512, 512, 3, 3}, {4, 0.5}));
  EXPECT_FALSE(is_compressed(shape{4096}, {4, 0.5})) << "a vector";
  EXPECT_FALSE(is_compressed({}, {1, 0.5})) << "one value";
  EXPECT_FALSE(is_compressed(shape{64, 64}, {0, 0.5})) << "off";
  // 1 − 4·(16 + 16)/256 = 0.5
  EXPECT_TRUE(is_compressed(shape{16, 16}, {4, 0.5}));
  EXPECT_FALSE(is_compressed(shape{16, 16}, {4, 0.51}));
  EXPECT_FALSE(is_compressed(shape{16, 16}, {5, 0.5}));
}

TEST(LowRank, IsNothingIfNoTensorIsCompressed) {
  EXPECT_EQ(low_rank::make(table_of({{8, 8}, {100}}), {4, 0.5}, "run"), nullptr);
  EXPECT_NE(low_rank::make(table_of({{8, 8}, {100}}), {1, 0.5}, "run"), nullptr);
}

TEST(LowRank, SendsTwoFactorsAndTheOtherTensorsAsTheyAre) {
  auto coding = low_rank::make(table_of({{7}, {16, 24}, {2, 2}, {4, 8, 32}}), {2, 0.5}, "run");
  ASSERT_NE(coding, nullptr);
  std::vector<std::uint64_t> first;
  std::vector<std::uint64_t> second;
  for (const auto& t : coding->first_tensors())
    first.push_back(t.elements);
  for (const auto& t : coding->second_tensors())
    second.push_back(t.elements);
  EXPECT_THAT(first, ::testing::ElementsAre(2 * 16, 2 * 32));
  EXPECT_THAT(second, ::testing::ElementsAre(7, 2 * 24, 4, 2 * 32));
  EXPECT_EQ(coding->second_tensors()[1].key, "w1") << "codecs may be chosen by name";
}

TEST(LowRank, BuffersFollowInTheSecondRound) {
  state_table state{{{"w", {16, 24}, state_tensor::kind::parameter},
                     {"exp_avg/w", {16, 24}, state_tensor::kind::statistic},
                     {"running_var", {3}, state_tensor::kind::buffer}}};
  auto coding = low_rank::make(state, {2, 0.5}, "run");
  ASSERT_NE(coding, nullptr);
  EXPECT_EQ(coding->second_tensors().back().role, tensor_role::buffer);
  values given(16 * 24 + 3, 0.5F);
  values first(2 * 16);
  values second(2 * 24 + 3);
  values result(given.size());
  coding->write_first(given, first);
  coding->write_second(given, first, second);
  coding->finish(given, second, second, result);
  coding->commit();
  EXPECT_EQ(values(result.end() - 3, result.end()), values(3, 0.5F));
}

// F15: the published test averages a matrix of one value.
TEST(LowRank, AConstantMatrixIsAveragedExactlyAtRankOne) {
  Peers peers{4, {{5, 5}}, 1};
  for (int round = 0; round < 3; ++round) {
    std::vector<values> gradients;
    for (std::size_t i = 0; i < 4; ++i)
      gradients.emplace_back(25, static_cast<float>(i));
    for (auto x : peers.round(gradients))
      EXPECT_NEAR(x, 1.5, 1e-6);
  }
}

// F3
TEST(LowRank, WeighsGradientsByTheSamplesBehindThem) {
  Peers peers{2, {{5, 5}}, 1};
  for (auto x : peers.round({values(25, -0.08F), values(25, 0.08F)}, {8, 18}))
    EXPECT_NEAR(x, 0.0307692, 1e-7);
}

// F15
TEST(LowRank, GradientsOfLowRankAreAveragedAsTheyAre) {
  random_source random{3};
  constexpr std::size_t rows = 40;
  constexpr std::size_t columns = 60;
  Peers peers{3, {{rows, columns}}, 4};
  // The same four left factors on all peers, so that the mean has rank four, too.
  auto left = random_values(4 * rows, random);
  for (int round = 0; round < 3; ++round) {
    std::vector<values> gradients;
    for (std::size_t i = 0; i < 3; ++i) {
      auto& g = gradients.emplace_back(rows * columns);
      auto right = random_values(4 * columns, random);
      for (std::size_t j = 0; j < 4; ++j)
        for (std::size_t e = 0; e < g.size(); ++e)
          g[e] += left[j * rows + e / columns] * right[j * columns + e % columns];
    }
    auto plain = Peers::mean(gradients, {1, 2, 3});
    EXPECT_LT(distance(peers.round(gradients, {1, 2, 3}), plain), 1e-4) << "round " << round;
    for (const auto& peer : peers.all)
      EXPECT_LT(length_of(peer->residual()), 3e-4 * length_of(plain)); // rounding, of all rounds
  }
}

// F15: a rank that saves nothing is the plain mean.
TEST(LowRank, AtAHighRankTensorsAreAveragedAsTheyAre) {
  EXPECT_FALSE(is_compressed(shape{6, 9}, {6, 0.01}));
  EXPECT_FALSE(is_compressed(shape{6, 9}, {4, 0.01}));
  random_source random{4};
  Peers peers{2, {{6, 9}, {32, 32}}, 6};
  std::vector<values> gradients{random_values(54 + 1024, random), random_values(54 + 1024, random)};
  auto result = peers.round(gradients);
  auto plain = Peers::mean(gradients, {1, 1});
  result.resize(54);
  plain.resize(54);
  EXPECT_EQ(result, plain);
}

/// The largest difference of two sums, relative to the largest value.
double worst(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double most = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    most = std::max(most, std::abs(b[i]));
  }
  return difference / most;
}

// F15: what the rounds have given, and what is left, is what the peers have computed.
TEST(LowRank, WhatIsNotCarriedStaysInTheResidual) {
  random_source random{5};
  const std::vector<shape> shapes{{24, 40}, {13}, {8, 6, 10}};
  const std::size_t n = 24 * 40 + 13 + 480;
  Peers peers{3, shapes, 2};
  std::vector<double> given;
  std::vector<double> computed;
  for (int round = 0; round < 50; ++round) {
    std::vector<values> gradients;
    for (std::size_t i = 0; i < 3; ++i)
      add(computed, gradients.emplace_back(random_values(n, random)), 1.0 / 3);
    add(given, peers.round(gradients));
  }
  EXPECT_GT(worst(given, computed), 0.01) << "the residuals are not empty";
  for (const auto& peer : peers.all)
    add(given, peer->residual(), 1.0 / 3);
  EXPECT_LT(worst(given, computed), 1e-5);
}

// F15, on each peer: with what this peer has given instead of the mean, whatever its weights are.
TEST(LowRank, OnEachPeerGivenAndResidualAreItsGradients) {
  random_source random{6};
  const std::size_t rows = 24;
  const std::size_t columns = 40;
  Peers peers{2, {{rows, columns}}, 2};
  std::vector<std::vector<double>> given(2);
  std::vector<std::vector<double>> computed(2);
  for (int round = 0; round < 30; ++round) {
    std::vector<values> gradients;
    std::vector<double> weights;
    for (std::size_t i = 0; i < 2; ++i) {
      add(computed[i], gradients.emplace_back(random_values(rows * columns, random)));
      weights.push_back(1 + random.unit() * 100);
    }
    auto sent = peers.both_vectors(gradients, weights);
    auto basis = sent.first;
    orthonormalize(basis, 2);
    for (std::size_t i = 0; i < 2; ++i) {
      values mine(rows * columns);
      for (std::size_t e = 0; e < mine.size(); ++e)
        for (std::size_t j = 0; j < 2; ++j)
          mine[e] += basis[j * rows + e / columns] * sent.second[i][j * columns + e % columns];
      add(given[i], mine);
      values result(mine.size());
      peers.all[i]->finish(gradients[i], Peers::mean(sent.second, weights), sent.second[i], result);
      peers.all[i]->commit();
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    add(given[i], peers.all[i]->residual());
    EXPECT_LT(worst(given[i], computed[i]), 1e-5);
  }
}

// With the mean in place of what a peer has given itself, each peer's residual would contain the
// sum of all differences between its gradients and the others', 10 times as much after 100 times as
// many rounds.
TEST(LowRank, ResidualsDoNotGrow) {
  random_source random{7};
  Peers peers{4, {{16, 16}}, 2};
  double early = 0;
  double late = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<values> gradients;
    for (std::size_t i = 0; i < 4; ++i)
      gradients.push_back(random_values(256, random));
    (void)peers.round(gradients);
    if (round >= 50 && round < 100)
      early += length_of(peers.all[0]->residual());
    if (round >= 1950)
      late += length_of(peers.all[0]->residual());
  }
  EXPECT_LT(late, 1.5 * early);
}

TEST(LowRank, AnAttemptThatIsAbandonedChangesNothing) {
  random_source random{8};
  auto gradients = [&] {
    return std::vector<values>{random_values(512, random), random_values(512, random)};
  };
  Peers calm{2, {{16, 32}}, 1};
  Peers troubled{2, {{16, 32}}, 1};
  for (int round = 0; round < 5; ++round) {
    auto now = gradients();
    values first(elements_of(troubled.all[0]->first_tensors()));
    troubled.all[0]->write_first(now[0], first); // the first round fails
    (void)troubled.both_vectors(now, {1, 1});    // the second one fails
    EXPECT_EQ(troubled.round(now), calm.round(now)) << "round " << round;
    EXPECT_EQ(troubled.all[1]->residual(), calm.all[1]->residual());
  }
}

// The averager may give up while the result is computed, and count the gradient again.
TEST(LowRank, AResultThatIsNotUsedChangesNothing) {
  auto coding = low_rank::make(table_of({{16, 24}}), {2, 0.5}, "run");
  random_source random{5};
  auto gradient = random_values(16 * 24, random);
  values first(2 * 16);
  values second(2 * 24);
  values result(gradient.size());
  auto round = [&] {
    coding->write_first(gradient, first);
    coding->write_second(gradient, first, second);
    coding->finish(gradient, second, second, result);
  };
  round();
  auto before = coding->residual();
  EXPECT_EQ(before, values(gradient.size())) << "not used yet";
  auto once = result;
  round();
  EXPECT_EQ(result, once);
  coding->finish_alone(gradient, result);
  EXPECT_EQ(coding->residual(), before);
  round();
  coding->commit();
  EXPECT_NE(coding->residual(), before);
  coding->forget();
  EXPECT_EQ(coding->residual(), before) << "of another history";
}

TEST(LowRank, APeerWithoutSamplesKeepsItsResidualAndLearnsTheFactors) {
  random_source random{9};
  Peers peers{2, {{16, 32}}, 1};
  (void)peers.round({random_values(512, random), random_values(512, random)});
  auto before = peers.all[1]->residual();
  EXPECT_GT(length_of(before), 0.1);
  (void)peers.round({random_values(512, random), values(512)}, {8, 0});
  EXPECT_EQ(peers.all[1]->residual(), before);
}

// Peers::round checks that results and factors are equal.
TEST(LowRank, ANewcomerIsEqualAfterItsFirstRound) {
  random_source random{10};
  auto two = [&] {
    return std::vector<values>{random_values(512, random), random_values(512, random)};
  };
  Peers peers{2, {{16, 32}}, 2};
  for (int i = 0; i < 5; ++i)
    (void)peers.round(two());
  Peers newcomer{1, {{16, 32}}, 2};
  ASSERT_FALSE(std::equal(newcomer.all[0]->factors().begin(), newcomer.all[0]->factors().end(),
                          peers.all[0]->factors().begin()));
  peers.all.push_back(newcomer.all[0]);
  auto three = two();
  three.push_back(random_values(512, random));
  (void)peers.round(three);
}

TEST(LowRank, AGradientThatWasZeroIsAveragedLater) {
  random_source random{11};
  Peers peers{2, {{16, 32}}, 2};
  (void)peers.round({values(512), values(512)});
  auto low = of_rank(2, 16, 32, random);
  EXPECT_LT(distance(peers.round({low, low}), low), 1e-5);
  // One column was enough for a while; the other one must come back.
  auto one = of_rank(1, 16, 32, random);
  for (int i = 0; i < 3; ++i)
    (void)peers.round({one, one});
  low = of_rank(2, 16, 32, random);
  (void)peers.round({low, low});
  EXPECT_LT(distance(peers.round({low, low}), low), 0.5);
}

// The squares of such values are zero in float16, and nearly so in float32.
TEST(LowRank, TinyGradientsAreAveraged) {
  random_source random{12};
  Peers peers{2, {{16, 32}}, 2};
  for (int round = 0; round < 4; ++round) {
    auto low = of_rank(2, 16, 32, random);
    for (auto& x : low)
      x *= 1e-25F;
    EXPECT_LT(distance(peers.round({low, low}), low), 1e-4);
    for (const auto& peer : peers.all)
      EXPECT_LT(length_of(peer->residual()), 1e-25);
  }
}

TEST(LowRank, ValuesThatAreNotFiniteDoNotStay) {
  random_source random{13};
  Peers peers{1, {{16, 32}, {3}}, 2};
  auto bad = random_values(515, random);
  bad[7] = std::numeric_limits<float>::infinity();
  bad[514] = std::nanf("");
  auto sent = peers.both_vectors({bad}, {1});
  values result(515);
  peers.all[0]->finish(bad, sent.second[0], sent.second[0], result);
  peers.all[0]->commit();
  for (auto x : peers.all[0]->residual())
    EXPECT_TRUE(std::isfinite(x));
  for (auto x : peers.all[0]->factors())
    EXPECT_TRUE(std::isfinite(x));
  auto low = of_rank(1, 16, 32, random);
  low.resize(515);
  for (int i = 0; i < 20; ++i)
    result = peers.round({low});
  EXPECT_LT(distance(result, low), 1e-4);
}

TEST(LowRank, AloneGivesAllAtOnce) {
  random_source random{14};
  Peers peers{2, {{16, 32}, {3}}, 1};
  (void)peers.round({random_values(515, random), random_values(515, random)});
  auto left = peers.all[0]->residual();
  EXPECT_GT(length_of(left), 0.1);
  auto gradient = random_values(515, random);
  values result(515);
  peers.all[0]->finish_alone(gradient, result);
  peers.all[0]->commit();
  for (std::size_t i = 0; i < 515; ++i)
    EXPECT_EQ(result[i], gradient[i] + left[i]);
  EXPECT_EQ(length_of(peers.all[0]->residual()), 0);
}

TEST(LowRank, TheErrorOfALossyCodecStaysInTheResidual) {
  random_source random{15};
  Peers peers{2, {{16, 32}, {30}}, 1};
  const std::size_t n = 512 + 30;
  std::vector<double> given;
  std::vector<double> computed;
  for (int round = 0; round < 20; ++round) {
    std::vector<values> gradients{random_values(n, random), random_values(n, random)};
    for (const auto& g : gradients)
      add(computed, g, 0.5);
    auto sent = peers.both_vectors(gradients, {1, 1});
    std::vector<values> carried;
    for (const auto& s : sent.second) {
      std::vector<coded_part> parts{{0, static_cast<std::uint32_t>(s.size()), codec_id::uniform8}};
      write_carried(s, parts, carried.emplace_back(s.size()));
    }
    auto mean = Peers::mean(carried, {1, 1});
    values result(n);
    for (std::size_t i = 0; i < 2; ++i) {
      peers.all[i]->finish(gradients[i], mean, carried[i], result);
      peers.all[i]->commit();
    }
    add(given, result);
  }
  for (const auto& peer : peers.all)
    add(given, peer->residual(), 0.5);
  EXPECT_LT(worst(given, computed), 1e-5);
}

TEST(LowRank, TheFirstFactorsDependOnTheRunAndTheParameter) {
  auto state = table_of({{16, 32}, {16, 32}});
  auto a = low_rank::make(state, {2, 0.5}, "run");
  auto b = low_rank::make(state, {2, 0.5}, "run");
  auto other = low_rank::make(state, {2, 0.5}, "another run");
  values of_a{a->factors().begin(), a->factors().end()};
  EXPECT_EQ(of_a, (values{b->factors().begin(), b->factors().end()}));
  EXPECT_NE(of_a, (values{other->factors().begin(), other->factors().end()}));
  values first{of_a.begin(), of_a.begin() + 64};
  values second{of_a.begin() + 64, of_a.end()};
  EXPECT_NE(first, second);
  for (std::size_t j = 0; j < 4; ++j)
    EXPECT_NEAR(length_of({of_a.begin() + static_cast<std::ptrdiff_t>(32 * j),
                           of_a.begin() + static_cast<std::ptrdiff_t>(32 * (j + 1))}),
                1, 1e-6);
}

// -- the products
// ----------------------------------------------------------------------------------

TEST(MatrixProducts, EqualNaiveSums) {
  random_source random{16};
  for (std::size_t n : {1U, 15U, 16U, 17U, 100U}) {
    const std::size_t rank = 3;
    auto x = random_values(n, random);
    auto q = random_values(rank * n, random);
    auto p = random_values(rank * 2, random);
    values dots(rank * 2);
    dot_with_each(x, q, rank, dots.data(), 2);
    auto sums = q;
    add_to_each(x, p.data(), 2, rank, sums);
    values combined(n, 7);
    combine(p.data(), 2, q, rank, combined);
    for (std::size_t j = 0; j < rank; ++j) {
      double dot = 0;
      for (std::size_t i = 0; i < n; ++i) {
        dot += static_cast<double>(x[i]) * static_cast<double>(q[j * n + i]);
        EXPECT_FLOAT_EQ(sums[j * n + i], q[j * n + i] + p[j * 2] * x[i]);
      }
      EXPECT_NEAR(dots[j * 2], dot, 1e-5);
    }
    for (std::size_t i = 0; i < n; ++i)
      EXPECT_NEAR(combined[i], p[0] * q[i] + p[2] * q[n + i] + p[4] * q[2 * n + i], 1e-5);
  }
}

TEST(Orthonormalize, MakesRowsOfLengthOneAtRightAngles) {
  random_source random{17};
  const std::size_t n = 50;
  auto rows = random_values(4 * n, random);
  for (std::size_t i = 0; i < n; ++i) // nearly the same direction
    rows[n + i] = rows[i] * 3 + 1e-4F * rows[n + i];
  orthonormalize(rows, 4);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 4; ++b) {
      double product = 0;
      for (std::size_t i = 0; i < n; ++i)
        product += static_cast<double>(rows[a * n + i]) * static_cast<double>(rows[b * n + i]);
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-6) << a << " " << b;
    }
}

TEST(Orthonormalize, GivesUpRowsThatAddNothing) {
  values rows{1, 2, 2, /**/ 0, 0, 0, /**/ 2, 4, 4, /**/ NAN, 1, 1, /**/ 0, 3, -3};
  orthonormalize(rows, 5);
  EXPECT_NEAR(rows[0], 1.0 / 3, 1e-7);
  for (std::size_t i = 3; i < 12; ++i)
    EXPECT_EQ(rows[i], 0) << i;
  EXPECT_NEAR(rows[13], std::sqrt(0.5), 1e-7);
}

} // namespace
} // namespace waggle
