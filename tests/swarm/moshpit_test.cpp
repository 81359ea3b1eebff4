// Parameters that are averaged in many small groups: how fast the peers of a large swarm approach
// each other, and that no peer trains on a state that is too old, whoever joins or dies.

#include <numeric>

#include <gmock/gmock.h>

#include "runtime/matchmaking/group_key.hpp"
#include "tests/swarm/moshpit_swarm.hpp"

namespace waggle::testing {
namespace {

// Moshpit SGD (arXiv:2103.03239): a full grid of side M and dimension d holds the exact mean after
// d rounds, and k equal groups of N peers leave (k - 1)/(N - 1) of the squared distance.
TEST(MoshpitTraining, SixtyFourPeersInGroupsOfEightHoldOneMeanAfterTwoRounds) {
  moshpit_swarm swarm{1, 8, 3s};
  swarm.step_interval = 3s;
  swarm.freeze(true);
  for (std::size_t i = 0; i < 64; ++i)
    swarm.join(bucket_digits(static_cast<std::uint32_t>(i % 8), 8));
  ASSERT_TRUE(swarm.begin(2500ms)) << picture(swarm.sim);
  random_source random{5};
  swarm.scatter(random);
  auto mean = swarm.mean();
  auto begin = swarm.spread();
  EXPECT_GT(begin, 1.0);
  auto began_at = swarm.status_of(0).epoch.value();
  swarm.watch_to_grid(1s);
  EXPECT_EQ(swarm.groups().count(8), 8U);
  EXPECT_NEAR(swarm.spread() / begin / (7.0 / 63), 1.0, 0.15);
  swarm.watch_to_grid(1s);
  EXPECT_EQ(swarm.groups().count(8), 8U);
  EXPECT_LT(swarm.spread() / begin, 1e-12) << "of float32 values";
  auto after = swarm.mean();
  for (std::size_t d = 0; d < mean.size(); ++d)
    EXPECT_NEAR(after[d], mean[d], 1e-6);

  // With training, and with peers that die and join before a round: no worse than groups drawn at
  // random.
  swarm.scatter(random);
  swarm.freeze(false);
  for (int dead = 0; dead < 5; ++dead) {
    auto living = swarm.sim.living();
    swarm.sim.crash(living[1 + random.below(living.size() - 1)], random.below(2) == 0);
  }
  swarm.join(bucket_digits(static_cast<std::uint32_t>(random.below(8)), 8));
  auto before = swarm.spread();
  swarm.watch_to_grid(2s);
  auto sizes = swarm.groups();
  auto peers = static_cast<double>(swarm.sim.living().size());
  auto grouped = static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  EXPECT_GT(grouped, 0.7 * peers) << "the others missed those that died without a word";
  auto alone = peers - grouped; // each a group of one
  auto formula = (static_cast<double>(sizes.size()) + alone - 1) / (peers - 1);
  EXPECT_LT(swarm.spread() / before, 1.25 * formula);
  for (int further = 0; further < 2; ++further)
    swarm.watch_to_grid(2s);
  EXPECT_GE(swarm.status_of(0).epoch.value(), began_at + 5) << "each grid point ends an epoch";
  expect_rounds_kept_the_contract(swarm.sim);
}

// Two groups, and one bucket: which peers meet depends on who is found first.
TEST(MoshpitTraining, APairOfGroupsMixesToo) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    moshpit_swarm swarm{seed, 3, 4s};
    swarm.freeze(true);
    for (int i = 0; i < 6; ++i)
      swarm.join();
    ASSERT_TRUE(swarm.begin(8s)) << picture(swarm.sim);
    random_source random{seed};
    swarm.scatter(random);
    auto begin = swarm.spread();
    for (int round = 0; round < 12; ++round)
      swarm.run_to_grid(2s);
    EXPECT_LT(swarm.spread() / begin, 1e-3);
  }
}

// Half of them accept no connections. In a group of theirs alone nobody could reduce.
TEST(MoshpitTraining, ClientsAreAveragedInGroupsOfPeersThatOthersCanReach) {
  moshpit_swarm swarm{7, 3, 3s};
  auto& sim = swarm.sim;
  swarm.step_interval = 500ms;
  swarm.freeze(true);
  std::vector<index> clients;
  for (int i = 0; i < 3; ++i)
    swarm.join();
  for (int i = 0; i < 3; ++i)
    clients.push_back(swarm.join("", member_mode::client));
  ASSERT_TRUE(swarm.begin(8s)) << picture(sim);
  random_source random{7};
  swarm.scatter(random);
  auto begin = swarm.spread();
  for (int round = 0; round < 12; ++round)
    swarm.run_to_grid(2s);
  EXPECT_LT(swarm.spread() / begin, 1e-3);
  swarm.freeze(false);
  for (int round = 0; round < 12; ++round)
    swarm.watch_to_grid(2s);
  expect_rounds_kept_the_contract(sim);
  std::set<peer_id> cannot_be_reached;
  for (auto i : clients)
    cannot_be_reached.insert(sim[i].self->id());
  for (auto i : clients) {
    auto s = swarm.status_of(i);
    expect_samples_accounted(s);
    EXPECT_GT(s.rounds_complete, 15U) << picture(sim);
    EXPECT_LT(s.loss, 0.7 * s.first_loss);
    for (const auto& round : sim[i].rounds) {
      const auto& in = round.contributors;
      auto reachable = std::count_if(
        in.begin(), in.end(), [&](const auto& peer) { return !cannot_be_reached.contains(peer); });
      EXPECT_TRUE(round.outcome == round_outcome::failed || reachable > 0);
    }
  }
}

// Peers join, are killed and cut off while they train. At every moment, each peer that trains is
// within the tolerance of the run as far as it can know of it.
/// Returns the largest number of epochs that a peer trained without a mean or a download.
std::uint64_t run_with_churn(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  random_source random{seed};
  moshpit_swarm swarm{seed, 3, 1500ms};
  swarm.step_interval = 100ms;
  auto& sim = swarm.sim;
  for (int i = 0; i < 10; ++i)
    swarm.join();
  age_watch watch{swarm};
  std::set<index> cut_off;
  for (int tick = 0; tick < 200; ++tick) {
    if (tick % 60 == 30)
      sim.crash(sim.living()[1 + random.below(sim.living().size() - 1)], random.below(2) == 0);
    if (tick % 60 == 40)
      swarm.join();
    if (tick == 70) {
      auto living = sim.living();
      random.shuffle(living);
      cut_off = {living.begin(), living.begin() + 3};
      sim.network().partition(cut_off);
    }
    if (tick == 120)
      sim.network().heal();
    if (tick == 135) // the links are back
      cut_off.clear();
    sim.run_for(200ms);
    EXPECT_THAT(watch.look(cut_off), ::testing::IsEmpty())
      << "after " << sim.seconds() << " s" << picture(sim);
    if (::testing::Test::HasFailure())
      return watch.longest_alone;
  }
  EXPECT_TRUE(swarm.begin(20s)) << picture(sim);
  expect_rounds_kept_the_contract(sim);
  for (auto i : sim.living()) {
    auto s = swarm.status_of(i);
    expect_samples_accounted(s);
    EXPECT_GT(s.rounds_complete + s.rounds_shrunk, 1U) << "peer " << i << picture(sim);
  }
  return watch.longest_alone;
}

TEST(MoshpitTraining, APeerThatFindsNoGroupDownloadsStatesInsteadOfDrifting) {
  moshpit_swarm swarm{5, 4, 8s};
  for (int i = 0; i < 4; ++i)
    swarm.join();
  swarm.adjust = [](node_config& c) { c.averaging->matchmaking.prefix = "elsewhere"; };
  auto lonely = swarm.join();
  ASSERT_TRUE(swarm.begin(60s)) << picture(swarm.sim);
  auto downloads = [&] {
    std::vector<std::uint64_t> all;
    for (auto i : swarm.sim.living())
      all.push_back(swarm.status_of(i).state_downloads);
    return all;
  };
  auto before = downloads();
  auto epoch = swarm.status_of(lonely).epoch.value();
  for (int i = 0; i < 12; ++i)
    swarm.run_to_grid(6s);
  auto after = downloads();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(after[i], before[i]) << "those that average need no states";
  EXPECT_EQ(swarm.status_of(lonely).rounds_complete, 0U);
  EXPECT_GE(swarm.status_of(lonely).epoch.value(), epoch + 11) << "it goes on with the run";
  EXPECT_GE(after[lonely], before[lonely] + 3);
  EXPECT_LE(after[lonely], before[lonely] + 6) << "no more than every other epoch";
}

TEST(MoshpitTraining, NoPeerTrainsOnAStateThatIsTooOld) {
  std::uint64_t longest_alone = 0;
  for (std::uint64_t seed = 1; seed <= 2 && !HasFailure(); ++seed)
    longest_alone = std::max(longest_alone, run_with_churn(seed));
  EXPECT_GT(longest_alone, 0U) << "nobody was ever without a mean";
}

} // namespace
} // namespace waggle::testing
