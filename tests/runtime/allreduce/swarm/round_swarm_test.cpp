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

/// As random_scenario, but members begin before their vectors are there.
round_scenario filled_later(std::uint64_t seed) {
  auto scene = random_scenario(seed);
  random_source random{seed};
  for (std::size_t i = 0; i < scene.plan.members.size(); ++i)
    scene.fills.push_back(milliseconds{random.below(300)});
  if (seed % 5 == 0)
    scene.spoiled = random.below(scene.plan.members.size());
  else if (seed % 5 == 1)
    scene.stalled = random.below(3) == 0 ? 0 : random.below(scene.plan.members.size());
  return scene;
}

void run_one(const round_scenario& scene, tally& sums, bool journal = false) {
  round_swarm swarm{scene};
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
    run_one(random_scenario(1 + GetParam() + i * shards), sums);
  // Most rounds have a result in spite of their faults, and many had to exclude a member.
  EXPECT_GT(sums.finished, sums.rounds * 8 / 10);
  EXPECT_GT(sums.shrunk, sums.rounds / 4);
  for (const auto& [kind, seconds] : sums.slowest)
    RecordProperty(std::string{"slowest_recovery_"} + to_string(kind), std::to_string(seconds));
}

TEST_P(RoundSwarm, ThatBeginsBeforeItsVectorsAreThereDoesTheSame) {
  tally sums;
  for (std::uint64_t i = 0; i < all_seeds / shards && !HasFailure(); ++i)
    run_one(filled_later(1 + GetParam() + i * shards), sums);
  EXPECT_GT(sums.finished, sums.rounds * 8 / 10);
  EXPECT_GT(sums.shrunk, sums.rounds / 4);
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
  bool filled = std::getenv("WAGGLE_SWARM_FILLED") != nullptr; // as filled_later
  char* rest = nullptr;
  auto from = std::strtoull(asked, &rest, 10);
  auto to = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : from;
  tally sums;
  for (auto seed = from; seed <= to; ++seed)
    run_one(filled ? filled_later(seed) : random_scenario(seed), sums, from == to);
  std::cout << sums.rounds << " rounds, " << sums.finished << " finished, " << sums.shrunk
            << " shrunk\n";
  for (const auto& [kind, seconds] : sums.slowest)
    std::cout << "slowest recovery from one " << to_string(kind) << ": " << seconds << " s\n";
}

} // namespace
} // namespace waggle::testing
