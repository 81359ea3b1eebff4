// Tests the checks of round_swarm themselves: each of these bugs is planted in all members, one at
// a time, and must be found within the seeds that the correct protocol passes. For each bug, the
// rule that it breaks (see runtime/averaging/README.md):
//
// - CommitsByMajority: a view is committed when *all* of its participants have prepared it
// - BreaksPromises: no member prepares a view below the highest number that it has promised
// - IgnoresWhatIsPrepared: a new leader adopts what may have been committed
// - AsksForNoPromises: a leader that has prepared asks for promises before it changes the
//   contributors
// - ForgetsItsCommit: a member that has committed reports that when asked, and to members that
//   still work
// - AveragesInPlace: a round that has not ended has changed nothing
// - DoesNotLookAtItsClock: every wait ends
// - Slanders: a member is left out only if it does something wrong
// - ReleasesTwice: a body's bytes are returned to the window only once
// - ForgetsToRelease: a body's bytes are returned to the window
//
// Two bugs of all members do no harm, because members compare digests before they apply a result:
//
// - TakesOldResults: a part of the result counts only for the contributors that it sums
// - SendsUnequalResults: a part's owner sends the same bytes to all members
//
// The bugs change the messages that members send and receive, through `saboteur`; the product's
// code is unchanged.

#include <gtest/gtest.h>

#include "tests/runtime/allreduce/swarm/saboteurs.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t seeds = 6'000;

class PlantedBug : public ::testing::TestWithParam<planted_bug> {};

TEST_P(PlantedBug, IsFoundWithinTheSeeds) {
  const auto& bug = GetParam();
  std::map<std::string, std::uint64_t> others;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    auto planted = bug.make();
    round_swarm swarm{random_scenario(seed), planted.get()};
    swarm.run();
    if (swarm.violation().find(bug.betrayed_by) != std::string::npos) {
      RecordProperty("seed", std::to_string(seed));
      return;
    }
    if (!swarm.violation().empty())
      others.emplace(swarm.violation(), seed);
  }
  std::string seen;
  for (const auto& [what, seed] : others)
    seen += "\n  seed " + std::to_string(seed) + ": " + what;
  ADD_FAILURE() << "no seed showed \"" << bug.betrayed_by << "\"; seen were:" << seen;
}

INSTANTIATE_TEST_SUITE_P(Each, PlantedBug, ::testing::ValuesIn(all_planted_bugs()),
                         [](const auto& info) { return info.param.name; });

class HarmlessBug : public ::testing::TestWithParam<planted_bug> {};

TEST_P(HarmlessBug, NeverMixesARound) {
  for (std::uint64_t seed = 1; seed <= seeds / 12 && !HasFailure(); ++seed) {
    auto planted = GetParam().make();
    round_swarm swarm{random_scenario(seed), planted.get()};
    swarm.run();
    EXPECT_EQ(swarm.violation().find(GetParam().betrayed_by), std::string::npos)
      << "seed " << seed << ": " << swarm.violation();
  }
}

INSTANTIATE_TEST_SUITE_P(Each, HarmlessBug, ::testing::ValuesIn(bugs_that_digests_reveal()),
                         [](const auto& info) { return info.param.name; });

} // namespace
} // namespace waggle::testing
