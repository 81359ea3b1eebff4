// Peers in many groups whose rounds block: they train on while they look for the members of a
// round, so that only the all-reduce stops them.

#include <iostream>

#include "runtime/averaging/fault_memory.hpp"
#include "tests/swarm/moshpit_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr auto matchmaking_time = 1s;

/// Peers whose rounds block, with steps of 20 ms.
struct blocking_swarm : moshpit_swarm {
  blocking_swarm(std::uint64_t seed, std::size_t peers, std::size_t target, double epoch)
    : moshpit_swarm(seed, target, 0ms) {
    step_interval = 20ms;
    auto batch = static_cast<std::uint64_t>(4 * 50 * epoch * static_cast<double>(peers));
    adjust = [batch](node_config& config) {
      config.averaging->matchmaking.min_matchmaking_time = matchmaking_time;
      auto& training = config.training->training;
      training.strategy = "local-updates";
      training.how = {};
      training.how.delay_state = false;
      training.target_batch_size = batch;
      config.progress.ledger.target_batch_size = batch;
    };
    for (std::size_t i = 0; i < peers; ++i)
      join();
  }
};

/// No member of any round was taken for one that has stalled or lied.
void expect_nobody_was_blamed(simulation& sim) {
  for (index i = 0; i < sim.size(); ++i)
    for (const auto& report : sim[i].rounds)
      for (const auto& fault : report.faults)
        EXPECT_EQ(kind_of(fault.reason), fault_kind::none)
          << "peer " << i << " blames " << short_name(fault.peer) << ": " << to_string(fault.reason)
          << " after " << sim.seconds() << " s";
}

TEST(MoshpitSearch, APeerWhoseRoundsBlockStandsStillOnlyForTheAllReduce) {
  // Two full groups of eight peers; and groups of which one is not full, and begins when its
  // leader's search expires.
  for (std::size_t target : {4, 3}) {
    SCOPED_TRACE("groups of " + std::to_string(target));
    blocking_swarm swarm{1, 8, target, 3};
    ASSERT_TRUE(swarm.begin(8s)) << picture(swarm.sim);
    swarm.sim.run_for(10s);
    auto seen = swarm.measure(30s);
    std::cout << "groups of " << target << ": all-reduce " << seen.all_reduce << " s, stall "
              << seen.stall << " s, epochs " << seen.epochs << ", averaged " << seen.averaged
              << "\n";
    // The time until the next step counts, too.
    EXPECT_LT(seen.stall, seen.all_reduce + 0.05);
    EXPECT_GT(seen.averaged, 0.8);
    expect_rounds_kept_the_contract(swarm.sim);
    expect_nobody_was_blamed(swarm.sim);
  }
}

// A peer that finds no place in a group searches on for a while. That must not shorten the epochs
// of others: no round begins before it is due.
TEST(MoshpitSearch, APeerThatIsLeftOverShortensNobodysEpoch) {
  constexpr std::size_t peers = 7; // in groups of three
  for (double epoch : {0.8, 1.5, 2.0, 4.0}) {
    SCOPED_TRACE(std::to_string(epoch) + " s an epoch");
    blocking_swarm swarm{2, peers, 3, epoch};
    ASSERT_TRUE(swarm.begin(10s)) << picture(swarm.sim);
    swarm.sim.run_for(10s);
    auto seen = swarm.measure(40s);
    EXPECT_LE(seen.epochs, 40 / epoch * 1.05 + 1);
    expect_nobody_was_blamed(swarm.sim);
  }
}

/// A peer of a swarm with very different speeds.
struct speed {
  milliseconds step;
  member_mode kind = member_mode::node;
};

/// Nobody is blamed, and all average, the slow ones in the middle of the pause between two steps.
void train_at(const std::vector<speed>& speeds, bool blocks, bool by_steps) {
  SCOPED_TRACE(std::string{blocks ? "blocking" : "delayed"}
               + (by_steps ? ", by steps" : ", by samples"));
  blocking_swarm swarm{3, 0, 3, 0};
  auto common = swarm.adjust;
  swarm.adjust = [&](node_config& config) {
    common(config);
    auto& training = config.training->training;
    training.how.delay_state = !blocks;
    training.target_batch_size = 300;
    config.progress.ledger.target_batch_size = 300;
    if (by_steps) {
      training.strategy = "decentralized-sgd";
      training.how.steps_period = 40;
    }
  };
  for (const auto& [step, kind] : speeds) {
    swarm.step_interval = step;
    swarm.join("", kind);
  }
  ASSERT_TRUE(swarm.begin(10s)) << picture(swarm.sim);
  swarm.sim.run_for(60s);
  expect_nobody_was_blamed(swarm.sim);
  expect_rounds_kept_the_contract(swarm.sim);
  for (auto i : swarm.sim.living()) {
    auto s = swarm.status_of(i);
    EXPECT_GT(s.rounds_complete, 10U) << "peer " << i << picture(swarm.sim);
    expect_samples_accounted(s);
  }
}

TEST(MoshpitSearch, NobodyIsTakenForStalledBecauseItIsSlow) {
  std::vector<speed> speeds{{50ms}, {50ms}, {100ms}, {300ms}, {1'000ms}, {3'000ms}};
  for (bool blocks : {true, false})
    for (bool by_steps : {false, true})
      train_at(speeds, blocks, by_steps);
}

} // namespace
} // namespace waggle::testing
