// Swarms whose learning rate depends on the loss of all peers: it must be the same on each of them,
// whoever joins, dies or catches up.

#include "runtime/training/layers.hpp"
#include "runtime/training/schedule_text.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

struct PlateauSwarm : ::testing::TestWithParam<int> {
  /// Peers whose losses differ: each has data of its own.
  static node_config peer(std::uint64_t data_seed) {
    auto config = training_node(data_seed);
    auto& training = config.training->training;
    auto parts = parse_schedule("plateau:factor=0.5,patience=1,threshold=0.3");
    EXPECT_TRUE(parts);
    training.schedule.parts = *parts;
    auto make = config.training->make_learner;
    config.training->make_learner = with_plateau(make, training.schedule.plateau());
    return config;
  }
  static training_status status_of(simulation& sim, index i) {
    auto status = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
    return status.value_or(training_status{});
  }
  static void expect_equal_rates(simulation& sim) {
    std::optional<training_status> first;
    std::optional<std::string> image;
    for (auto i : sim.living()) {
      auto s = status_of(sim, i);
      if (!first)
        first = s;
      EXPECT_EQ(s.parameters, first->parameters) << picture(sim);
      EXPECT_EQ(s.learning_rate, first->learning_rate) << i;
      EXPECT_EQ(s.rate_reductions, first->rate_reductions) << i;
      EXPECT_GT(s.rate_reductions.value_or(0), 2U) << i;
      EXPECT_LT(s.learning_rate, 0.05 / 4) << i;
      auto state = sim.ask<state_snapshot>(sim[i].node.parts.trainer, get_state_snapshot{});
      ASSERT_TRUE(state) << i;
      // The learner's part; the header has the work, which is the same, too, but no tensor.
      auto bytes = read_all(*state->state);
      std::string own{as_string_view(bytes->view()).substr(state_header_bytes)};
      EXPECT_EQ(image.value_or(own), own) << i << ": the best loss and all counts";
      image = own;
    }
  }
};

TEST_P(PlateauSwarm, EndsWithEqualRatesAfterAJoinAKillAndCatchingUp) {
  net::sim_network::options weather;
  simulation sim{static_cast<std::uint64_t>(GetParam()), weather};
  auto first = peer(1);
  first.training->training.join_timeout = 0ms;
  sim.start(std::move(first), {});
  sim.start(peer(2), {0});
  sim.start(peer(3), {0});
  auto at = [&](std::uint64_t epoch) {
    return [&sim, epoch] {
      auto peers = sim.living();
      return std::any_of(peers.begin(), peers.end(),
                         [&](index i) { return status_of(sim, i).epoch.value() >= epoch; });
    };
  };
  ASSERT_TRUE(sim.run_until(at(10), 600s)) << picture(sim);
  ASSERT_GT(status_of(sim, 0).rate_reductions.value_or(0), 0U) << "before the next one joins";
  auto late = sim.start(peer(4), {0, 1});
  ASSERT_TRUE(sim.run_until(at(18), 600s)) << picture(sim);
  sim.crash(1, true);
  ASSERT_TRUE(sim.run_until(at(26), 600s)) << picture(sim);
  auto last = sim.start(peer(5), {0, 2});
  ASSERT_TRUE(sim.run_until([&] { return all_finished_equal(sim); }, 1'200s)) << picture(sim);
  EXPECT_GE(status_of(sim, late).state_downloads, 1U);
  EXPECT_GE(status_of(sim, last).state_downloads, 1U);
  expect_equal_rates(sim);
  expect_rounds_kept_the_contract(sim);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlateauSwarm, ::testing::Range(1, 3));

} // namespace
} // namespace waggle::testing
