// Averaging in a grid of buckets: after each group its members move to other buckets, so that the
// value of every peer reaches all peers in a few rounds.

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "runtime/matchmaking/group_key.hpp"
#include "tests/runtime/matchmaking/search_swarm.hpp"

namespace waggle {
namespace {

using testing::conditions, testing::swarm;

constexpr std::size_t dimensions = 16;

/// Peers with one vector each that search for groups, average in them, and move to other buckets.
class moshpit {
public:
  moshpit(std::uint64_t seed, std::size_t peers, std::size_t target, const std::string& bits = "")
    : seed_(seed), random_(seed) {
    given_.peers = peers;
    given_.connected = false;
    given_.options.target_group_size = target;
    given_.options.look_up_interval = 250ms;
    given_.patience = 6s;
    for (std::size_t i = 0; i < peers; ++i) {
      keys_.push_back(*group_key::make("p", bits));
      values_.emplace_back();
      for (auto& x : values_.back())
        x = 2 * random_.unit() - 1;
    }
  }

  void set_bits(std::size_t peer, const std::string& bits) {
    keys_[peer] = *group_key::make("p", bits);
  }

  /// One round without the absent peers; returns the sizes of its groups.
  std::multiset<std::size_t> round(const std::set<std::size_t>& absent = {}) {
    ++rounds_;
    given_.absent = absent;
    given_.keys.clear();
    for (const auto& key : keys_)
      given_.keys.push_back(key.text());
    swarm s{1'000'000 * seed_ + rounds_, given_};
    s.run();
    expect_contract(s, given_);
    std::multiset<std::size_t> sizes;
    for (std::size_t i = 0; i < s.members().size(); ++i) {
      const auto& m = s.members()[i];
      if (m.formed && m.formed->leader == i) {
        average(m.formed->order);
        sizes.insert(m.formed->order.size());
      }
    }
    return sizes;
  }

  [[nodiscard]] std::array<double, dimensions> mean() const {
    std::array<double, dimensions> out{};
    for (const auto& v : values_)
      for (std::size_t d = 0; d < dimensions; ++d)
        out[d] += v[d] / static_cast<double>(values_.size());
    return out;
  }
  /// The mean squared distance of a peer's vector from the mean.
  [[nodiscard]] double spread() const {
    auto middle = mean();
    double sum = 0;
    for (const auto& v : values_)
      for (std::size_t d = 0; d < dimensions; ++d)
        sum += (v[d] - middle[d]) * (v[d] - middle[d]);
    return sum / static_cast<double>(values_.size());
  }
  [[nodiscard]] std::map<std::string, std::size_t> crowds() const {
    std::map<std::string, std::size_t> out;
    for (const auto& key : keys_)
      ++out[key.bits()];
    return out;
  }
  random_source& random() { return random_; }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

private:
  void average(const std::vector<std::size_t>& order) {
    std::array<double, dimensions> sum{};
    for (auto i : order)
      for (std::size_t d = 0; d < dimensions; ++d)
        sum[d] += values_[i][d];
    round_id id;
    random_.fill(id.bytes);
    for (std::size_t position = 0; position < order.size(); ++position) {
      auto i = order[position];
      for (std::size_t d = 0; d < dimensions; ++d)
        values_[i][d] = sum[d] / static_cast<double>(order.size());
      keys_[i].move_on(id, position, order.size(), given_.options.target_group_size);
    }
  }

  std::uint64_t seed_;
  random_source random_;
  std::uint64_t rounds_ = 0;
  conditions given_;
  std::vector<group_key> keys_;
  std::vector<std::array<double, dimensions>> values_;
};

void expect_same_mean(const moshpit& swarm, const std::array<double, dimensions>& before) {
  auto after = swarm.mean();
  for (std::size_t d = 0; d < dimensions; ++d)
    EXPECT_NEAR(after[d], before[d], 1e-12);
}

TEST(Moshpit, SixtyFourPeersInGroupsOfEightHoldTheExactMeanAfterTwoRounds) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    moshpit swarm{seed, 64, 8};
    for (std::size_t i = 0; i < 64; ++i)
      swarm.set_bits(i, bucket_digits(static_cast<std::uint32_t>(i % 8), 8));
    auto mean = swarm.mean();
    EXPECT_GT(swarm.spread(), 1.0);
    EXPECT_EQ(swarm.round().count(8), 8u);
    EXPECT_GT(swarm.spread(), 1e-3);
    EXPECT_EQ(swarm.crowds().size(), 8u);
    EXPECT_EQ(swarm.round().count(8), 8u);
    EXPECT_LT(swarm.spread(), 1e-24);
    expect_same_mean(swarm, mean);
    if (::testing::Test::HasFailure())
      return;
  }
}

// A grid of three dimensions: 4·4·4.
TEST(Moshpit, SixtyFourPeersInGroupsOfFourNeedThreeRounds) {
  moshpit swarm{1, 64, 4};
  for (std::size_t i = 0; i < 64; ++i)
    swarm.set_bits(i, bucket_digits(static_cast<std::uint32_t>(i % 16), 16));
  auto mean = swarm.mean();
  for (int round = 1; round <= 3; ++round) {
    EXPECT_GT(swarm.spread(), 1e-3) << "before round " << round;
    EXPECT_EQ(swarm.round().count(4), 16u);
  }
  EXPECT_LT(swarm.spread(), 1e-24);
  expect_same_mean(swarm, mean);
}

TEST(Moshpit, GridOfEightPeersInPairs) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    moshpit swarm{seed, 8, 2};
    for (std::size_t i = 0; i < 8; ++i)
      swarm.set_bits(i, bucket_digits(static_cast<std::uint32_t>(i / 2), 4));
    auto mean = swarm.mean();
    auto spread = swarm.spread();
    for (int round = 1; round <= 5; ++round) {
      EXPECT_EQ(swarm.round().count(2), 4u) << "round " << round;
      EXPECT_LE(swarm.spread(), spread * (1 + 1e-12));
      spread = swarm.spread();
      expect_same_mean(swarm, mean);
      if (round >= 3) {
        EXPECT_LT(std::sqrt(spread), 1e-6);
      }
    }
    if (::testing::Test::HasFailure())
      return;
  }
}

// If every peer draws a new bucket in every round, the squared distance from the mean shrinks per
// round by (r - 1)/N + r/N², for N peers in r groups.
TEST(Moshpit, RandomGroupsConvergeAtTheRateOfTheFormula) {
  constexpr std::size_t peers = 64;
  constexpr std::size_t groups = 8;
  double sum = 0;
  int rounds = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    moshpit swarm{seed, peers, 64};
    for (int round = 0; round < 4; ++round) {
      for (std::size_t i = 0; i < peers; ++i)
        swarm.set_bits(
          i, bucket_digits(static_cast<std::uint32_t>(swarm.random().below(groups)), groups));
      auto before = swarm.spread();
      (void)swarm.round();
      sum += swarm.spread() / before;
      ++rounds;
    }
    if (::testing::Test::HasFailure())
      return;
  }
  double n = peers;
  double r = groups;
  EXPECT_NEAR(sum / rounds / ((r - 1) / n + r / (n * n)), 1.0, 0.1);
}

// A fifth of the peers misses each round. The rest is no grid any more, but no worse than groups
// drawn at random: k groups (a peer alone counts as one) of N peers leave (k - 1)/(N - 1) of the
// squared distance.
TEST(Moshpit, UnderChurnItConvergesAsFastAsRandomGroups) {
  constexpr std::size_t peers = 64;
  double ours = 0;
  double formula = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    moshpit swarm{seed, peers, 8};
    for (std::size_t i = 0; i < peers; ++i)
      swarm.set_bits(i, bucket_digits(static_cast<std::uint32_t>(i % 8), 8));
    auto mean = swarm.mean();
    auto begin = swarm.spread();
    for (int round = 0; round < 6; ++round) {
      std::set<std::size_t> absent;
      for (std::size_t i = 0; i < peers; ++i)
        if (swarm.random().unit() < 0.2)
          absent.insert(i);
      auto before = swarm.spread();
      auto sizes = swarm.round(absent);
      std::size_t grouped = 0;
      for (auto size : sizes)
        grouped += size;
      auto k = static_cast<double>(sizes.size() + peers - grouped);
      EXPECT_LE(swarm.spread(), before * (1 + 1e-12)) << "it never grows";
      ours += swarm.spread() / before;
      formula += (k - 1) / (peers - 1);
    }
    EXPECT_LT(swarm.spread(), begin / 100);
    expect_same_mean(swarm, mean);
    if (::testing::Test::HasFailure())
      return;
  }
  EXPECT_LT(ours, 1.1 * formula);
  RecordProperty("ratio_to_formula", std::to_string(ours / formula));
}

} // namespace
} // namespace waggle
