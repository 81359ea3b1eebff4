// Every strategy among peers of different kinds, with a lossy codec: two trainers, a client that
// only dials, an auxiliary that only reduces.

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {
namespace {

struct mixed_mode {
  const char* name;
  void (*set)(training_config& config);
  codec_id codec = codec_id::none;
  bool equal_parameters = false; // of all peers of an epoch
};

void PrintTo(const mixed_mode& m, std::ostream* out) {
  *out << m.name;
}

/// Steps with single micro-batches need a smaller rate.
void local(training_config& c, const char* strategy) {
  c.strategy = strategy;
  c.schedule.peak = 0.005;
  c.how.steps_period = 4;
  c.how.statistics = {"momentum_buffer"};
}

const mixed_mode mixed_modes[] = {
  {"Collaborative", [](training_config&) {}, codec_id::uniform8, true},
  {"DelayedGradients", [](training_config& c) { c.how.delay_gradients = true; }, codec_id::float16,
   true},
  {"DelayedSteps", [](training_config& c) { c.delay_optimizer_step = true; }, codec_id::none, true},
  {"DelayedGradientsAndSteps",
   [](training_config& c) {
     c.how.delay_gradients = true;
     c.delay_optimizer_step = true;
   },
   codec_id::uniform8, true},
  {"LocalUpdates", [](training_config& c) { local(c, "local-updates"); }, codec_id::uniform8},
  {"BlockingLocalUpdates",
   [](training_config& c) {
     local(c, "local-updates");
     c.how.delay_state = false;
   },
   codec_id::float16},
  {"DecentralizedSgd", [](training_config& c) { local(c, "decentralized-sgd"); },
   codec_id::blockwise8},
};

class MixedModes : public ::testing::TestWithParam<mixed_mode>, protected trainers {
protected:
  MixedModes() : trainers(23) {}

  static node_config peer(std::uint64_t data_seed, member_mode kind = member_mode::node) {
    auto config = endless(data_seed);
    auto& training = config.training->training;
    GetParam().set(training);
    config.averaging->averaging.codec = GetParam().codec;
    config.averaging->matchmaking.mode = kind;
    config.client_mode = kind == member_mode::client;
    training.auxiliary = kind == member_mode::auxiliary;
    config.averaging->averaging.auxiliary = training.auxiliary;
    return config;
  }
};

TEST_P(MixedModes, TrainTogether) {
  auto first = add(peer(1), {});
  auto second = add(peer(2), {first});
  auto client = add(peer(3, member_mode::client), {first});
  auto auxiliary = add(peer(4, member_mode::auxiliary), {first});
  std::vector<index> train{first, second, client};
  ASSERT_TRUE(sim.run_until([&] { return together(train, 4); }, 20s)) << picture(sim);
  auto before = status_of(first).epoch;
  sim.run_for(15s);
  EXPECT_TRUE(together(train, 4)) << picture(sim);
  EXPECT_GT(status_of(first).epoch.value(), before.value() + 15);
  sim.crash(second, false);
  train = {first, client};
  EXPECT_TRUE(sim.run_until([&] { return together(train, 3); }, 10s)) << picture(sim);
  sim.run_for(10s);

  expect_rounds_kept_the_contract(sim, true);
  for (auto i : train) {
    auto s = status_of(i);
    expect_samples_accounted(s);
    EXPECT_GT(s.samples_used, 0U);
    EXPECT_LT(s.loss, 0.7 * s.first_loss) << picture(sim);
  }
  auto helps = status_of(auxiliary);
  EXPECT_EQ(helps.steps, 0U);
  EXPECT_GT(helps.rounds_complete + helps.rounds_shrunk, 15U);
  if (!GetParam().equal_parameters)
    return;
  auto equal = [&] {
    auto a = status_of(first);
    auto b = status_of(client);
    return a.epoch == b.epoch && !a.parameters.is_zero() && !b.parameters.is_zero();
  };
  ASSERT_TRUE(sim.run_until(equal, 5s)) << picture(sim);
  EXPECT_EQ(status_of(first).parameters, status_of(client).parameters);
}

INSTANTIATE_TEST_SUITE_P(Strategies, MixedModes, ::testing::ValuesIn(mixed_modes),
                         [](const auto& info) { return std::string{info.param.name}; });

class WithAnAuxiliary : public ::testing::Test, protected trainers {
protected:
  WithAnAuxiliary() : trainers(31) {}
};

TEST_F(WithAnAuxiliary, RoundsInWhichAllOthersTookPartAreNoReasonToWarn) {
  add(endless(1), {});
  add(endless(2), {0});
  auto reduces = endless(3);
  reduces.training->training.auxiliary = reduces.averaging->averaging.auxiliary = true;
  reduces.averaging->matchmaking.mode = member_mode::auxiliary;
  add(reduces, {0});
  ASSERT_TRUE(sim.run_until([&] { return together({0, 1}, 3); }, 10s)) << picture(sim);
  sim.run_for(20s);
  for (auto i : sim.living()) {
    EXPECT_EQ(status_of(i).notice, "") << "peer " << i;
    auto seen = sim.ask<swarm_progress>(sim[i].node.parts.tracker, get_swarm_progress{});
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->num_peers, 2U) << "that train";
    EXPECT_EQ(seen->num_auxiliaries, 1U);
  }
}

} // namespace
} // namespace waggle::testing
