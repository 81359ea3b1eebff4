// Links on which a round takes about half as long as the passes of an epoch: the strategies that
// train on while they average lose no passes to it.

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

constexpr std::uint64_t passes_per_epoch = 20; // of each peer, whatever the size of the swarm
constexpr auto pass_time = 100ms;
constexpr std::size_t swarm_size = 3;

struct strategy_on_slow_links {
  const char* name;
  void (*set)(training_config& config);
  bool trains_on = true; // while a round runs
};

void PrintTo(const strategy_on_slow_links& s, std::ostream* out) {
  *out << s.name;
}

const strategy_on_slow_links strategies[] = {
  {"Collaborative", [](training_config&) {}, false},
  {"DelayedGradients", [](training_config& c) { c.how.delay_gradients = true; }},
  {"DelayedGradientsAndSteps",
   [](training_config& c) {
     c.how.delay_gradients = true;
     c.delay_optimizer_step = true;
   }},
  {"LocalUpdates",
   [](training_config& c) {
     c.strategy = "local-updates";
     c.schedule.peak = 0.005;
   }},
  {"DecentralizedSgd",
   [](training_config& c) {
     c.strategy = "decentralized-sgd";
     c.schedule.peak = 0.005;
     c.how.steps_period = passes_per_epoch;
   }},
};

/// What a swarm does in a minute of its time.
struct minute {
  std::vector<std::uint64_t> passes; // of each peer
  double longest_pause = 0;          // seconds between the beginnings of two passes of a peer
  double round_seconds = 0;          // mean of the rounds with all peers
  std::size_t rounds = 0;
};

minute observe(const strategy_on_slow_links& how, std::size_t peers) {
  // A third of the gradient goes over each link, to be reduced, and then a third of the mean.
  trainers swarm{3, {.delay_min = 20ms, .delay_max = 30ms, .bytes_per_second = 170}};
  auto& sim = swarm.sim;
  minute seen;
  std::vector<double> last_pass(peers, 0); // 0: not observed yet
  bool observed = false;
  for (index i = 0; i < peers; ++i) {
    auto config = trainers::endless(i + 1);
    auto begins = [&, i] {
      auto before = std::exchange(last_pass[i], observed ? sim.seconds() : 0);
      if (before > 0)
        seen.longest_pause = std::max(seen.longest_pause, sim.seconds() - before);
    };
    config.training->make_learner =
      toys({.parameters = 64, .micro_batch = 4, .data_seed = i + 1, .during_pass = begins});
    auto& training = config.training->training;
    training.step_interval = pass_time;
    training.target_batch_size = peers * passes_per_epoch * 4;
    config.progress.ledger.target_batch_size = training.target_batch_size;
    how.set(training);
    swarm.join(std::move(config));
  }
  EXPECT_TRUE(sim.run_until([&] { return swarm.together(); }, 30s)) << picture(sim);
  sim.run_for(10s);
  observed = true;
  std::vector<std::size_t> rounds_before;
  for (index i = 0; i < peers; ++i) {
    seen.passes.push_back(swarm.status_of(i).steps);
    rounds_before.push_back(sim[i].rounds.size());
  }
  sim.run_for(60s);
  double seconds = 0;
  for (index i = 0; i < peers; ++i) {
    auto s = swarm.status_of(i);
    expect_samples_accounted(s);
    seen.passes[i] = s.steps - seen.passes[i];
    const auto& rounds = sim[i].rounds;
    for (auto r = rounds_before[i]; r < rounds.size(); ++r) {
      EXPECT_EQ(rounds[r].contributors.size(), peers);
      seconds += rounds[r].allreduce_seconds;
      ++seen.rounds;
    }
  }
  seen.round_seconds = seconds / static_cast<double>(seen.rounds);
  EXPECT_TRUE(swarm.together()) << picture(sim);
  expect_rounds_kept_the_contract(sim);
  return seen;
}

class SlowLinks : public ::testing::TestWithParam<strategy_on_slow_links> {};

TEST_P(SlowLinks, CostNoPassesIfTrainingGoesOnDuringRounds) {
  const auto& how = GetParam();
  auto alone = observe(how, 1).passes.front();
  auto together = observe(how, swarm_size);
  auto epoch_seconds = passes_per_epoch * seconds_of(pass_time);
  EXPECT_NEAR(together.round_seconds / epoch_seconds, 0.5, 0.1);
  EXPECT_GT(together.rounds, 15 * swarm_size);
  // Copies of the model take no virtual time, so there is nothing else to wait for.
  if (how.trains_on)
    EXPECT_LE(together.longest_pause, seconds_of(pass_time) + 0.001);
  else
    EXPECT_GE(together.longest_pause, 0.8 * together.round_seconds);
  RecordProperty("round_seconds", std::to_string(together.round_seconds));
  for (index i = 0; i < swarm_size; ++i) {
    auto share = static_cast<double>(together.passes[i]) / static_cast<double>(alone);
    RecordProperty("share_of_peer_" + std::to_string(i), std::to_string(share));
    if (how.trains_on)
      EXPECT_GE(share, 0.95) << together.passes[i] << " passes instead of " << alone;
    else // otherwise these links prove nothing about the others
      EXPECT_LE(share, 0.70) << together.passes[i] << " passes instead of " << alone;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, SlowLinks, ::testing::ValuesIn(strategies),
                         [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
