// Whole swarms in one thread, under seeded faults: the contract of rounds holds, no sample is lost,
// and all peers end in sync.

#include <netdb.h>

#include "tests/support/seeds.hpp"
#include "tests/swarm/training_swarm.hpp"

static int names_asked = 0;

/// Takes the place of the C library's in this program.
extern "C" int getaddrinfo(const char* /*host*/, const char* /*service*/, const addrinfo* /*hints*/,
                           addrinfo** /*found*/) {
  ++names_asked;
  return EAI_NONAME;
}

namespace waggle::testing {
namespace {

/// Eight peers; one is killed, one joins, the network splits and heals.
std::uint64_t run_faulty_swarm(std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  random_source random{seed};
  net::sim_network::options weather{.loss = 0.01};
  simulation sim{seed, weather};
  sim.start(training_node(1), {});
  for (std::uint64_t i = 1; i < 8; ++i) {
    sim.run_for(milliseconds{random.below(300)});
    sim.start(training_node(i + 1), {0});
  }
  sim.run_for(3s + milliseconds{random.below(3000)});

  auto victim = random.below(8);
  sim.crash(victim, random.below(2) == 0);
  sim.run_for(milliseconds{random.below(4000)});

  auto alive = sim.living();
  sim.start(training_node(100), {alive[random.below(alive.size())]});
  sim.run_for(milliseconds{random.below(4000)});

  std::set<net::sim_network::node_index> side;
  alive = sim.living();
  random.shuffle(alive);
  side.insert(alive.begin(), alive.begin() + 1 + static_cast<std::ptrdiff_t>(random.below(4)));
  sim.network().partition(side);
  sim.run_for(2s + milliseconds{random.below(8000)});
  sim.network().heal();

  bool all_equal = false;
  for (int half_seconds = 0; half_seconds < 600 && !all_equal; ++half_seconds) {
    sim.run_for(500ms);
    all_equal = all_finished_equal(sim);
  }
  EXPECT_TRUE(all_equal) << "after " << sim.seconds() << " s:" << picture(sim);
  expect_rounds_kept_the_contract(sim);
  for (auto i : sim.living())
    if (auto status = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{}))
      expect_samples_accounted(*status);
  return sim.network().trace_hash();
}

TEST(Simulation, TheSameSeedGivesTheSameTrace) {
  auto first = run_faulty_swarm(1);
  EXPECT_EQ(run_faulty_swarm(1), first);
  EXPECT_NE(run_faulty_swarm(2), first);
}

TEST(Simulation, AFrozenPeerComputesNothingUntilItIsThawed) {
  simulation sim{3};
  std::uint64_t passes = 0; // of the second peer
  sim.start(training_node(1), {});
  auto watched = training_node(2);
  watched.training->training.max_epochs = 0;
  watched.training->make_learner =
    toys({.parameters = 64, .micro_batch = 4, .during_pass = [&] { ++passes; }});
  sim.start(std::move(watched), {0});
  auto status_of = [&](index i) {
    return sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{})
      .value_or(training_status{});
  };
  auto train_in_a_group = [&] { return status_of(0).group_size == 2 && passes > 0; };
  ASSERT_TRUE(sim.run_until(train_in_a_group, 10s)) << picture(sim);
  sim.freeze(1);
  passes = 0;
  ASSERT_TRUE(sim.run_until([&] { return status_of(0).group_size == 1; }, 20s));
  EXPECT_EQ(passes, 0U);
  sim.thaw(1);
  EXPECT_TRUE(sim.run_until(train_in_a_group, 20s)) << picture(sim);
}

TEST(Simulation, WaitsForNoNameServer) {
  names_asked = 0;
  simulation sim{4};
  sim.start(training_node(1), {});
  sim.start(training_node(2), {0});
  sim.run_for(1s);
  EXPECT_EQ(names_asked, 0);
}

/// Fifty seeds, in shards that can run side by side. Fewer with WAGGLE_TEST_SEEDS, for builds
/// in which a seed takes minutes.
class FaultySwarms : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(FaultySwarms, KeepTheRoundContractLoseNoSampleAndEndInSync) {
  auto end = GetParam() + std::min<std::uint64_t>(number_in("WAGGLE_TEST_SEEDS", 10), 10);
  for (auto seed = GetParam(); seed < end && !HasFailure(); ++seed)
    run_faulty_swarm(seed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultySwarms, ::testing::Range<std::uint64_t>(10, 60, 10));

} // namespace
} // namespace waggle::testing
