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

/// As a reducer computes it.
values mean_of(const std::vector<peer>& peers) {
  values mean{};
  for (std::size_t i = 0; i < step_values; ++i) {
    float sum = 0;
    for (const auto& p : peers)
      sum += p.contributes()[i];
    mean[i] = sum / static_cast<float>(peers.size());
  }
  return mean;
}

void run_round(std::vector<peer>& peers) {
  auto mean = mean_of(peers);
  for (auto& p : peers) {
    p.total += steps_of_round(mean, static_cast<double>(peers.size()), &p.total);
    p.steps = 0;
  }
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

TEST(StepCount, APeerThatMissedRoundsAgreesSoonAndNobodyGoesBack) {
  for (std::size_t members : {2U, 3U, 8U, 64U})
    for (std::uint64_t behind : {1U, 40U, 5'000U}) {
      std::vector<peer> peers(members, peer{10, 1'000'000});
      peers.front().total -= behind;
      int rounds = 0;
      while (peers.front().total != peers.back().total && rounds < 40) {
        auto before = peers;
        for (auto& p : peers)
          p.steps = 10;
        run_round(peers);
        ++rounds;
        for (std::size_t i = 0; i < members; ++i)
          ASSERT_GE(peers[i].total, before[i].total + 10 * members);
        for (std::size_t i = 1; i < members; ++i)
          ASSERT_EQ(peers[i].total, before[i].total + 10 * members) << "only the others count";
      }
      EXPECT_LE(rounds, 15) << members << " members, " << behind << " steps behind";
    }
}

TEST(StepCount, WhoHasNoStateYetLearnsTheStepsOfTheRoundAlone) {
  std::vector<peer> peers(3, peer{20, 777'777});
  EXPECT_EQ(steps_of_round(mean_of(peers), 3, nullptr), 60U);
}

TEST(StepCount, InManyGroupsOneGroupStandsForAll) {
  std::vector<peer> group(4, peer{25, 1'000});
  auto total = group.front().total;
  EXPECT_EQ(steps_of_round(mean_of(group), 64, &total), 1'600U);
}

// A member may contribute anything; robust aggregators aside, so it can to the parameters.
TEST(StepCount, ValuesThatNobodyCountsAreBounded) {
  std::uint64_t total = 1'000;
  for (float x : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                  -std::numeric_limits<float>::infinity(), -1.0F, -1e30F})
    EXPECT_EQ(steps_of_round(values{x, x, x, x}, 4, &total), 0U) << x;
  auto most = std::numeric_limits<float>::max();
  EXPECT_LE(steps_of_round(values{most, most, most, most}, most, &total),
            counted_steps_max + (1ULL << 44U));
  EXPECT_EQ(steps_of_round(values{5, 0, 0, 0}, std::nan(""), &total), 0U);
  EXPECT_EQ(steps_of_round(values{5, 0, 0, 0}, -3, &total), 0U);
}

TEST(StepCount, EvenTheLargestTotalIsWrittenAndRead) {
  peer p{7, counted_steps_max};
  std::uint64_t none = 0;
  EXPECT_EQ(steps_of_round(p.contributes(), 1, &none), 7 + counted_steps_max);
  peer beyond{0, ~std::uint64_t{0}};
  EXPECT_EQ(steps_of_round(beyond.contributes(), 1, &none), counted_steps_max);
}

} // namespace
} // namespace waggle
