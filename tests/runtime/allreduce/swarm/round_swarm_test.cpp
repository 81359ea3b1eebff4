// Two thousand rounds of real engines and registries, each with its own members, parts, network and
// faults. The contract is in round_swarm.hpp.

#include "tests/runtime/allreduce/swarm/round_swarm.hpp"

#include <cstdlib>
#include <iostream>
#include <map>

#include <gtest/gtest.h>

namespace waggle::testing {
namespace {

constexpr std::uint64_t all_seeds = 2'000;
constexpr std::uint64_t shards = 8;

/// Statistics of a number of rounds.
struct tally {
  std::size_t rounds = 0;
  std::size_t finished = 0; // by at least one member
  std::size_t shrunk = 0;
  std::map<fault_kind, double> slowest; // seconds from a round's only fault on
};

void run_one(std::uint64_t seed, tally& sums, bool journal = false) {
  round_swarm swarm{random_scenario(seed)};
  if (journal)
    swarm.keep_journal();
  swarm.run();
  EXPECT_EQ(swarm.violation(), "") << swarm.describe() << "\n" << swarm.journal();
  ++sums.rounds;
  sums.finished += swarm.finished() > 0 ? 1 : 0;
  sums.shrunk += swarm.shrunk() ? 1 : 0;
  if (swarm.struck().size() == 1) {
    auto& slowest = sums.slowest[swarm.struck()[0].kind];
    slowest = std::max(slowest, seconds_of(swarm.recovery()));
  }
}

class RoundSwarm : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(RoundSwarm, NeverMixesHangsOrExcludesTheBlameless) {
  tally sums;
  for (std::uint64_t i = 0; i < all_seeds / shards && !HasFailure(); ++i)
    run_one(1 + GetParam() + i * shards, sums);
  // Most rounds have a result in spite of their faults, and many had to exclude a member.
  EXPECT_GT(sums.finished, sums.rounds * 8 / 10);
  EXPECT_GT(sums.shrunk, sums.rounds / 4);
  for (const auto& [kind, seconds] : sums.slowest)
    RecordProperty(std::string{"slowest_recovery_"} + to_string(kind), std::to_string(seconds));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RoundSwarm, ::testing::Range(std::uint64_t{0}, shards));

TEST(RoundSwarms, TheSameSeedGivesTheSameTrace) {
  auto trace = [](std::uint64_t seed) {
    round_swarm swarm{random_scenario(seed)};
    swarm.run();
    return swarm.trace_hash();
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    ASSERT_EQ(trace(seed), trace(seed)) << "seed " << seed;
  EXPECT_NE(trace(1), trace(2));
}

/// Run manually: WAGGLE_SWARM_SEEDS=from-to, for example one seed that failed, or many seeds
/// overnight. Without the variable it runs a few seeds, so that this path stays tested.
TEST(RoundSwarms, KeepTheirPromisesForTheSeedsThatAreAskedFor) {
  const char* asked = std::getenv("WAGGLE_SWARM_SEEDS");
  if (asked == nullptr)
    asked = "2001-2020";
  char* rest = nullptr;
  auto from = std::strtoull(asked, &rest, 10);
  auto to = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : from;
  tally sums;
  for (auto seed = from; seed <= to; ++seed)
    run_one(seed, sums, from == to);
  std::cout << sums.rounds << " rounds, " << sums.finished << " finished, " << sums.shrunk
            << " shrunk\n";
  for (const auto& [kind, seconds] : sums.slowest)
    std::cout << "slowest recovery from one " << to_string(kind) << ": " << seconds << " s\n";
}

} // namespace
} // namespace waggle::testing
