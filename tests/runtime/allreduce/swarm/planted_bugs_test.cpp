// Do the checks of round_swarm see anything? Each of these bugs is planted in all members, one at a
// time, and has to be found within the seeds that the sound protocol passes:
//
// | bug                   | what it breaks (actors/README.md, "The averaging round")              |
// |-----------------------|-----------------------------------------------------------------------|
// | CommitsByMajority     | a view is committed when *all* of its participants have prepared it |
// | BreaksPromises        | nobody prepares a view below the highest number it has promised | |
// IgnoresWhatIsPrepared | a new leader adopts what may have been committed                       |
// | AsksForNoPromises     | a leader that has prepared asks before it changes the contributors | |
// TakesOldResults       | a part of the result counts only for the contributors that it sums     |
// | ForgetsItsCommit      | whoever has committed says so when asked, and to those who still work |
// | SendsUnequalResults   | a part's owner sends the same bytes to everybody | | AveragesInPlace |
// a round that is not over has changed nothing                           | | DoesNotLookAtItsClock
// | every wait ends                                                        | | Slanders | only who
// does something wrong is left out                              | | ReleasesTwice         | a
// body's room in the window is given back once                         | | ForgetsToRelease      |
// … and it is given back                                                 |
//
// The bugs live in what members say and hear, not in the product's code: `saboteur` bends it.

#include <gtest/gtest.h>

#include "tests/runtime/allreduce/swarm/saboteurs.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t seeds = 2'000;

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

} // namespace
} // namespace waggle::testing
