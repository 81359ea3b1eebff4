#include "runtime/training/step_count.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/core/random.hpp"

namespace waggle {
namespace {

using values = std::array<float, step_values>;

struct peer {
  std::uint64_t steps = 0; // since the last round
  std::uint64_t total = 0;

  [[nodiscard]] values contributes() const {
    values out{};
    write_steps(out, steps, total);
    return out;
  }
};

/// As a reducer computes it, with weights of 1.
values mean_of(const std::vector<peer>& peers) {
  values mean{};
  for (std::size_t i = 0; i < step_values; ++i) {
    double sum = 0;
    for (const auto& p : peers)
      sum += static_cast<double>(p.contributes()[i]);
    mean[i] = static_cast<float>(sum * (1 / static_cast<double>(peers.size())));
  }
  return mean;
}

void end_round(std::vector<peer>& peers, const values& mean) {
  for (auto& p : peers) {
    p.total = static_cast<std::uint64_t>(
      static_cast<std::int64_t>(p.total)
      + change_of_steps(mean, static_cast<double>(peers.size()), &p.total));
    p.steps = 0;
  }
}

void run_round(std::vector<peer>& peers) {
  end_round(peers, mean_of(peers));
}

TEST(StepCount, IsTheSumOfAllStepsOnEachMember) {
  random_source random{3};
  for (std::size_t members : {1U, 2U, 3U, 7U, 64U})
    // The last ones differ from their neighbours by less than a float of their size can tell.
    for (std::uint64_t before : {0ULL, 1'000ULL, 123'456'789'012ULL, (1ULL << 47U) + 1}) {
      std::vector<peer> peers(members, peer{0, before});
      auto expected = before;
      for (int round = 0; round < 50; ++round) {
        for (auto& p : peers)
          expected += p.steps = random.below(300);
        run_round(peers);
        for (const auto& p : peers)
          ASSERT_EQ(p.total, expected) << members << " members, round " << round;
      }
    }
}

// Also where the others' second piece of 17 bits has just begun.
TEST(StepCount, APeerThatMissedRoundsAgreesWithTheOthersAfterOne) {
  for (std::size_t members : {2U, 3U, 8U, 64U})
    for (std::uint64_t total : {1'000'000ULL, (1ULL << 17U) + 3})
      for (std::uint64_t behind : {1U, 40U, 70U}) {
        std::vector<peer> peers(members, peer{10, total});
        peers.front().total -= behind;
        run_round(peers);
        for (const auto& p : peers)
          ASSERT_EQ(p.total, peers.front().total);
        auto exact = static_cast<double>(total + 10 * members)
                     - static_cast<double>(behind) / static_cast<double>(members);
        EXPECT_NEAR(static_cast<double>(peers.front().total), exact, 1);
      }
}

// A float carries the mean of the middle piece to about 2^-8, which counts 2^17 times as much.
TEST(StepCount, EvenWhereTheLastPieceBeginsPeersAgreeSoon) {
  for (std::size_t members : {2U, 3U, 7U, 64U}) {
    std::vector<peer> peers(members, peer{10, (1ULL << 34U) + 3});
    peers.front().total -= 40;
    int rounds = 0;
    for (; peers.front().total != peers.back().total && rounds < 20; ++rounds) {
      for (auto& p : peers)
        p.steps = 10;
      run_round(peers);
    }
    EXPECT_LT(rounds, 20);
    EXPECT_NEAR(static_cast<double>(peers.front().total), 0x1p34, 20'000);
  }
}

// Unequal estimates (many groups) must neither drift up nor down.
TEST(StepCount, DisagreementLeavesTheMeanAsItIs) {
  random_source random{9};
  std::vector<peer> peers(16);
  std::uint64_t made = 0;
  for (int round = 0; round < 2'000; ++round) {
    for (std::size_t i = 0; i < peers.size(); ++i)
      made += peers[i].steps = i < 8 ? 10 : random.below(3); // half of them are slow
    random.shuffle(peers);
    for (std::size_t first = 0; first < peers.size(); first += 4) {
      std::vector<peer> group(peers.begin() + static_cast<std::ptrdiff_t>(first),
                              peers.begin() + static_cast<std::ptrdiff_t>(first) + 4);
      auto mean = mean_of(group);
      for (std::size_t i = first; i < first + 4; ++i) {
        auto change = change_of_steps(mean, 16, &peers[i].total);
        peers[i].total =
          static_cast<std::uint64_t>(static_cast<std::int64_t>(peers[i].total) + change);
        peers[i].steps = 0;
      }
    }
  }
  for (const auto& p : peers)
    EXPECT_NEAR(static_cast<double>(p.total), static_cast<double>(made),
                0.02 * static_cast<double>(made));
}

TEST(StepCount, APeerThatClaimsTooManyMovesTheOthersAFewRoundsAndComesDown) {
  std::vector<peer> peers(4, peer{10, 1'000});
  peers.back().total = counted_steps_max; // the state of a donor that lied, say
  run_round(peers);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(peers[i].total, 1'000U + 40 + 40 * steps_ahead_max);
  EXPECT_LT(peers.back().total, counted_steps_max / 2);
  int rounds = 0;
  while (peers.back().total != peers.front().total && rounds < 200) {
    for (auto& p : peers)
      p.steps = 10;
    run_round(peers);
    ++rounds;
  }
  EXPECT_LT(rounds, 60);
  EXPECT_LT(peers.front().total, 60U * 9 * 40);
}

TEST(StepCount, WhoHasNoStateYetLearnsTheStepsOfTheRoundAlone) {
  std::vector<peer> peers(3, peer{20, 777'777});
  EXPECT_EQ(change_of_steps(mean_of(peers), 3, nullptr), 60);
}

// A member may contribute anything; robust aggregators aside, so it can to the parameters.
TEST(StepCount, ValuesThatNobodyCountsAreBounded) {
  std::uint64_t total = 1'000;
  for (float x : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                  -std::numeric_limits<float>::infinity(), -1.0F, -1e30F}) {
    EXPECT_EQ(change_of_steps(values{x, x, x, x}, 4, &total), -1'000) << x;
    EXPECT_EQ(change_of_steps(values{x, x, x, x}, 4, nullptr), 0) << x;
  }
  auto most = std::numeric_limits<float>::max();
  EXPECT_LE(change_of_steps(values{most, most, most, most}, most, &total),
            (steps_ahead_max + 1) * (std::int64_t{1} << 44U));
  EXPECT_EQ(change_of_steps(values{5, 0, 0, 0}, std::nan(""), nullptr), 0);
  EXPECT_EQ(change_of_steps(values{5, 0, 0, 0}, -3, nullptr), 0);
  std::uint64_t beyond = ~std::uint64_t{0};
  EXPECT_LT(change_of_steps(values{5, 0, 0, 0}, 1, &beyond), 0);
}

} // namespace
} // namespace waggle
