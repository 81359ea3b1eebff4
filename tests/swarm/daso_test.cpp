// DASO in simulated swarms without faults: its lock step, and its whole schedule.

#include <algorithm>

#include "runtime/training/strategies/daso_schedule.hpp"
#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t peers = 3;

class DasoSwarm : public ::testing::Test, protected trainers {
protected:
  DasoSwarm() : trainers(3) {}

  /// Trains with all peers from the first pass to round `last`.
  void train(void (*set)(training_config&), std::uint64_t last) {
    mode how{"", set, true};
    for (std::size_t i = 0; i < peers; ++i) {
      models_.push_back(std::make_shared<learner*>(nullptr));
      auto config = with_mode(how, i + 1, last, nullptr, models_.back());
      config.training->training.min_peers = peers;
      add(std::move(config), i == 0 ? std::vector<index>{} : std::vector<index>{0});
    }
    auto ended = [&] {
      return std::ranges::all_of(
        sim.living(), [&](index i) { return status_of(i).phase == trainer_phase::finished; });
    };
    ASSERT_TRUE(sim.run_until(ended, 60s)) << picture(sim);
    sim.run_for(1s); // the last update is applied after its epoch has ended
    expect_rounds_kept_the_contract(sim);
  }

  std::vector<float> parameters_of(std::size_t peer) {
    std::vector<float> values(64);
    (**models_[peer]).read_tensor(0, values);
    return values;
  }

  std::vector<learner_slot> models_;
};

/// The mean of parameters after a step of each from equal ones is the step with the mean gradient,
/// and the mean of momenta that of the mean gradients.
TEST_F(DasoSwarm, ItsWarmUpIsDataParallelTraining) {
  constexpr std::uint64_t updates = 20;
  train([](training_config& c) { local(c, "daso:epochs=9,batches=5,warmup=8,cooldown=1"); },
        updates);
  for (std::size_t i = 0; i < peers; ++i) {
    EXPECT_EQ(status_of(i).steps, updates);
    EXPECT_EQ(parameters_of(i), parameters_of(0));
  }
  struct other : trainers {
    other() : trainers(3) {}
  } same;
  std::vector<learner_slot> models;
  mode how{"", [](training_config& c) { local(c, "data-parallel"); }, true};
  for (std::size_t i = 0; i < peers; ++i) {
    models.push_back(std::make_shared<learner*>(nullptr));
    auto config = with_mode(how, i + 1, updates, nullptr, models.back());
    config.training->training.min_peers = peers;
    same.add(std::move(config), i == 0 ? std::vector<index>{} : std::vector<index>{0});
  }
  auto ended = [&] {
    return std::ranges::all_of(same.sim.living(), [&](index i) {
      return same.status_of(i).phase == trainer_phase::finished;
    });
  };
  ASSERT_TRUE(same.sim.run_until(ended, 60s));
  same.sim.run_for(1s);
  std::vector<float> expected(64);
  (**models[0]).read_tensor(0, expected);
  EXPECT_EQ(same.status_of(0).steps, updates);
  auto found = parameters_of(0);
  for (std::size_t k = 0; k < expected.size(); ++k)
    EXPECT_NEAR(found[k], expected[k], 1e-5) << k;
}

TEST_F(DasoSwarm, MakesTheRoundsAndTheBatchesOfItsSchedule) {
  // The loss falls, but never by the share of `stability`, so the skips are those of a constant
  // one: 4, 2, 1, 8, 4, …
  constexpr daso_rule rule{.epochs = 18, .batches = 10, .warmup = 2, .cooldown = 2};
  daso_schedule schedule{rule};
  std::uint64_t rounds = 0;
  for (; schedule.epochs_done() < rule.epochs; ++rounds)
    schedule.end_round(1);
  train(
    [](training_config& c) {
      local(c, "daso:epochs=18,batches=10,warmup=2,cooldown=2,stability=0.9999");
    },
    rounds);
  for (std::size_t i = 0; i < peers; ++i) {
    EXPECT_GE(status_of(i).steps, 180U);
    EXPECT_LE(status_of(i).steps, 182U) << "more than its epochs have";
    EXPECT_EQ(status_of(i).parameters, status_of(0).parameters);
    EXPECT_EQ(parameters_of(i), parameters_of(0)) << "the last round is a blocking one";
    EXPECT_LT(status_of(i).loss, 0.5 * status_of(i).first_loss);
    expect_samples_accounted(status_of(i));
  }
}

} // namespace
} // namespace waggle::testing
