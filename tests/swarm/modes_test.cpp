// Every strategy in whole swarms: peers join, are killed and cut off at any moment; at the end all
// are in step, no sample is lost, and the strategy's own invariant holds.

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

struct mode {
  const char* name;
  void (*set)(training_config& config);
  bool equal_parameters = false; // of all peers of an epoch
  bool matrix = false;           // the model's parameters
};

void PrintTo(const mode& m, std::ostream* out) {
  *out << m.name;
}

/// Steps with single micro-batches need a smaller rate.
void local(training_config& c, const char* strategy) {
  c.strategy = strategy;
  c.schedule.peak = 0.005;
}

const mode modes[] = {
  {"DelayedGradients", [](training_config& c) { c.how.delay_gradients = true; }, true},
  {"LowRank",
   [](training_config& c) {
     c.how.coding = {2, 0.4};
   },
   true, true},
  {"LowRankDelayed",
   [](training_config& c) {
     c.how.coding = {2, 0.4};
     c.how.delay_gradients = true;
   },
   true, true},
  {"LocalUpdates", [](training_config& c) { local(c, "local-updates"); }},
  {"BlockingLocalUpdates",
   [](training_config& c) {
     local(c, "local-updates");
     c.how.delay_state = false;
   }},
  {"DecentralizedSteps",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 4;
     c.how.statistics = {"momentum_buffer"};
   }},
  {"DecentralizedGrid",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 1;
     c.how.time_period = 400;
   }},
  {"MoshpitSteps",
   [](training_config& c) {
     local(c, "decentralized-sgd");
     c.how.steps_period = 8;
     c.how.statistics = {"momentum_buffer"};
     c.many_groups = true;
   }},
  {"MoshpitSamples",
   [](training_config& c) {
     local(c, "local-updates");
     c.target_batch_size = 96;
     c.many_groups = true;
   }},
  {"BlockingMoshpit",
   [](training_config& c) {
     local(c, "local-updates");
     c.target_batch_size = 96;
     c.how.delay_state = false;
     c.many_groups = true;
   }},
};

node_config with_mode(const mode& how, std::uint64_t data_seed, std::uint64_t max_epochs) {
  auto config = trainers::endless(data_seed);
  config.training->training.max_epochs = max_epochs;
  how.set(config.training->training);
  if (how.matrix)
    config.training->make_learner = [data_seed]() -> result<std::unique_ptr<learner>> {
      return std::unique_ptr<learner>{
        make_toy_learner({.parameters = 64, .micro_batch = 4, .data_seed = data_seed, .rows = 8})};
    };
  if (config.training->training.many_groups) {
    auto& groups = config.averaging->matchmaking;
    groups.target_group_size = 2;
    groups.elastic_bits = true;
    groups.min_matchmaking_time = 400ms;
    groups.request_timeout = 300ms;
  }
  return config;
}

class Modes : public ::testing::TestWithParam<mode>, protected trainers {
protected:
  Modes() : trainers(11) {}
};

TEST_P(Modes, PeersJoinAndReturnInStepAndTheLossFalls) {
  auto fresh = [this](std::uint64_t seed) { return with_mode(GetParam(), seed, 0); };
  add(fresh(1), {});
  for (std::uint64_t n = 2; n < 5; ++n)
    add(fresh(n), {0});
  ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
  sim.run_for(10s);
  for (index victim : {0U, 2U}) {
    sim.crash(victim, false);
    add(fresh(victim + 10), {3});
    EXPECT_TRUE(sim.run_until([&] { return together(); }, 5s)) << picture(sim);
  }
  sim.run_for(30s);
  EXPECT_TRUE(together()) << picture(sim);
  expect_rounds_kept_the_contract(sim);
  for (auto i : sim.living()) {
    auto s = status_of(i);
    expect_samples_accounted(s);
    EXPECT_LT(s.loss, 0.7 * status_of(3).first_loss);
    EXPECT_GT(s.rounds_complete, 20U);
  }
}

/// Five peers; one is killed, one joins, the network splits and heals, at moments of the seed.
void run_faults(const mode& how, std::uint64_t seed) {
  SCOPED_TRACE(std::string{how.name} + ", seed " + std::to_string(seed));
  constexpr std::uint64_t last = 60;
  random_source random{seed};
  simulation sim{seed, {.loss = 0.01}};
  auto start = [&](std::uint64_t data_seed, std::vector<index> through) {
    auto config = with_mode(how, data_seed, last);
    if (through.empty())
      config.training->training.join_timeout = 0ms;
    sim.start(std::move(config), through);
  };
  start(1, {});
  for (std::uint64_t n = 2; n < 6; ++n) {
    sim.run_for(milliseconds{random.below(300)});
    start(n, {0});
  }
  sim.run_for(500ms + milliseconds{random.below(3000)});
  sim.crash(random.below(5), random.below(2) == 0);
  sim.run_for(milliseconds{random.below(1000)});
  auto alive = sim.living();
  start(100, {alive[random.below(alive.size())]});
  sim.run_for(milliseconds{random.below(1000)});
  alive = sim.living();
  random.shuffle(alive);
  sim.network().partition({alive.begin(), alive.begin() + 1 + random.below(2)});
  sim.run_for(500ms + milliseconds{random.below(5000)});
  sim.network().heal();

  auto all_ended = [&] {
    for (auto i : sim.living()) {
      auto s = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
      if (!s || s->phase != trainer_phase::finished || s->epoch.value() != last)
        return false;
    }
    return true;
  };
  std::optional<digest> parameters;
  EXPECT_TRUE(sim.run_until(all_ended, 120s)) << picture(sim);
  sim.run_for(1s);
  EXPECT_TRUE(all_ended()) << picture(sim);
  expect_rounds_kept_the_contract(sim);
  for (auto i : sim.living()) {
    auto s = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
    ASSERT_TRUE(s.has_value());
    expect_samples_accounted(*s);
    bool equal = how.equal_parameters;
    EXPECT_EQ(s->parameters.is_zero(), !equal);
    if (!parameters)
      parameters = s->parameters;
    EXPECT_EQ(s->parameters, *parameters);
  }
}

int seeds_per_mode() {
  const char* chosen = std::getenv("WAGGLE_TEST_SEEDS");
  return chosen != nullptr ? std::max(std::atoi(chosen), 1) : 6;
}

TEST_P(Modes, SurviveFaultsAtAnyMoment) {
  for (int i = 0; i < seeds_per_mode() && !HasFailure(); ++i)
    run_faults(GetParam(), static_cast<std::uint64_t>(i) + 1);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Modes, ::testing::ValuesIn(modes),
                         [](const auto& info) { return std::string{info.param.name}; });

} // namespace
} // namespace waggle::testing
