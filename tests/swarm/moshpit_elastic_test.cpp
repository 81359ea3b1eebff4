// Many groups of 64 peers that nobody has assigned to buckets: how many bits their keys have
// follows from what they see of each other.

#include <numeric>

#include "tests/swarm/moshpit_swarm.hpp"

namespace waggle::testing {
namespace {

class ElasticMoshpit : public ::testing::TestWithParam<std::uint64_t> {};

// Moshpit SGD (arXiv:2103.03239): k groups drawn at random leave (k - 1)/(N - 1) of the squared
// distance from the mean, whatever their sizes; a peer alone is a group. 64 peers in full groups of
// 8: 7/63.
TEST_P(ElasticMoshpit, SixtyFourPeersApproachEachOtherAtTheRateOfRandomGroups) {
  constexpr std::size_t peers = 64;
  constexpr int rounds = 2;
  moshpit_swarm swarm{GetParam(), 8, 2s};
  swarm.freeze(true);
  for (std::size_t i = 0; i < peers; ++i)
    swarm.join();
  ASSERT_TRUE(swarm.begin(5s)) << picture(swarm.sim);
  random_source random{GetParam()};
  swarm.scatter(random);
  auto mean = swarm.mean();
  auto begin = swarm.spread();
  (void)swarm.groups(); // those before
  double left = 1;      // of the squared distance, if all groups were drawn at random
  for (int round = 0; round < rounds; ++round) {
    auto before = swarm.spread();
    swarm.run_to_grid(1500ms);
    auto sizes = swarm.groups();
    auto grouped = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    EXPECT_GE(grouped, peers - 8) << "in round " << round;
    auto groups = static_cast<double>(sizes.size() + peers - grouped);
    auto formula = (groups - 1) / (peers - 1);
    EXPECT_LT(formula, 2 * 7.0 / 63) << "no more than twice as many groups as there could be";
    EXPECT_LT(swarm.spread() / before, 1.7 * formula) << "in round " << round;
    left *= formula;
  }
  EXPECT_LT(swarm.spread() / begin, 1.7 * left);
  auto after = swarm.mean();
  for (std::size_t d = 0; d < mean.size(); ++d)
    EXPECT_NEAR(after[d], mean[d], 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ElasticMoshpit, ::testing::Values(1, 3));

} // namespace
} // namespace waggle::testing
