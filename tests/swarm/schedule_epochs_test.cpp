// Schedules whose epochs have a number of steps of all peers (`--total-steps-in-epoch`), in whole
// swarms: all peers count the same steps, whoever comes, goes and fails.

#include "tests/swarm/moshpit_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t steps_in_epoch = 50;

/// The optimizer steps that the living peers have made.
std::uint64_t steps_of_all(trainers& swarm) {
  std::uint64_t sum = 0;
  for (auto i : swarm.sim.living())
    sum += swarm.status_of(i).steps;
  return sum;
}

struct StepsOfOneGroup : ::testing::Test, protected trainers {
  StepsOfOneGroup() : trainers(23) {}

  node_config counting(std::uint64_t seed) {
    auto config = endless(seed);
    auto& training = config.training->training;
    training.strategy = "decentralized-sgd";
    training.how.steps_period = 5;
    training.how.steps_in_epoch = steps_in_epoch;
    training.schedule.peak = 0.005;
    return config;
  }
};

TEST_F(StepsOfOneGroup, AreCountedAlikeByAllAlsoAfterFaults) {
  add(counting(1), {});
  for (std::uint64_t n = 2; n < 5; ++n)
    add(counting(n), {0});
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
  sim.run_for(10s);
  auto lost = status_of(2).steps;
  sim.crash(2, false);
  sim.run_for(3s);
  add(counting(9), {0});
  sim.run_for(3s);
  sim.network().partition({1});
  sim.run_for(4s); // both sides go on, and count by themselves
  sim.network().heal();
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 20s)) << picture(sim);
  sim.run_for(10s);
  // At equal epochs of one history; a look at a moment at which a round ends may find two.
  auto agree = [&] {
    auto first = status_of(0);
    for (auto i : sim.living()) {
      auto s = status_of(i);
      if (s.past != first.past || s.epoch != first.epoch)
        return false;
    }
    return true;
  };
  EXPECT_TRUE(sim.run_until(agree, 5s)) << picture(sim);
  auto s = status_of(0);
  // Not counted: steps since the last round, and what is dropped when a peer leaves a group.
  auto all = steps_of_all(*this) + lost;
  EXPECT_LE(s.past.steps, all);
  EXPECT_GT(s.past.steps, all - all / 10);
  EXPECT_GT(s.schedule_epoch.value(), 20U);
}

struct StepsOfManyGroups : ::testing::Test, protected moshpit_swarm {
  StepsOfManyGroups() : moshpit_swarm(5, 2, 2s) {
    step_interval = 250ms;
    adjust = [this](node_config& config) {
      config.training->training.how.steps_in_epoch = steps_in_epoch;
      if (sim.size() % 2 == 1) // half of the peers are slow
        config.training->training.step_interval = 1s;
    };
  }
};

TEST_F(StepsOfManyGroups, AreEstimatedCloselyFromThoseOfEachGroup) {
  constexpr std::size_t peers = 8;
  for (std::size_t n = 0; n < peers; ++n)
    join();
  ASSERT_TRUE(begin(20s)) << picture(sim);
  for (int round = 0; round < 80; ++round)
    run_to_grid(1s);
  auto all = static_cast<double>(steps_of_all(*this));
  for (auto i : sim.living()) {
    auto s = status_of(i);
    EXPECT_NEAR(static_cast<double>(s.past.steps), all, 0.08 * all) << "peer " << i;
  }
}

} // namespace
} // namespace waggle::testing
