// DASO in simulated swarms without faults: its lock step, and its whole schedule.

#include "runtime/training/strategies/daso_schedule.hpp"
#include "tests/swarm/modes.hpp"

namespace waggle::testing {
namespace {

constexpr std::size_t peers = 3;

/// Trains with all peers from the first pass to round `last`; 0: until the run ends.
struct daso_swarm : trainers {
  daso_swarm(void (*set)(training_config&), std::uint64_t last) : trainers(4) {
    for (std::size_t i = 0; i < peers; ++i) {
      models_.push_back(std::make_shared<learner*>(nullptr));
      auto config = with_mode({"", set, true}, i + 1, last, nullptr, models_.back());
      config.training->training.min_peers = peers;
      join(std::move(config));
    }
    EXPECT_TRUE(sim.run_until([this] { return all_finished(); }, 60s)) << picture(sim);
    sim.run_for(1s); // the last update is applied after its epoch has ended
    expect_rounds_kept_the_contract(sim);
  }
  [[nodiscard]] std::vector<float> parameters_of(std::size_t peer) const {
    std::vector<float> values(64);
    (**models_[peer]).read_tensor(0, values);
    return values;
  }

private:
  std::vector<learner_slot> models_;
};

/// The mean of parameters after a step of each from equal ones is the step with the mean gradient,
/// and the mean of momenta that of the mean gradients.
TEST(DasoSwarm, ItsWarmUpIsDataParallelTraining) {
  constexpr std::uint64_t updates = 20;
  daso_swarm swarm{
    [](training_config& c) { local(c, "daso:epochs=9,batches=5,warmup=8,cooldown=1"); }, updates};
  for (std::size_t i = 0; i < peers; ++i) {
    EXPECT_EQ(swarm.status_of(i).steps, updates);
    EXPECT_EQ(swarm.parameters_of(i), swarm.parameters_of(0));
  }
  daso_swarm same{[](training_config& c) { local(c, "data-parallel"); }, updates};
  EXPECT_EQ(same.status_of(0).steps, updates);
  auto expected = same.parameters_of(0);
  auto found = swarm.parameters_of(0);
  for (std::size_t k = 0; k < expected.size(); ++k)
    EXPECT_NEAR(found[k], expected[k], 1e-5) << k;
}

TEST(DasoSwarm, MakesTheRoundsAndTheBatchesOfItsSchedule) {
  // The loss falls, but never by the share of `stability`, so the skips are those of a constant
  // one: 4, 2, 1, 8, 4, …
  constexpr daso_rule rule{.epochs = 18, .batches = 10, .warmup = 2, .cooldown = 2};
  daso_schedule schedule{rule};
  std::uint64_t rounds = 0;
  for (; schedule.epochs_done() < rule.epochs; ++rounds)
    schedule.end_round(1);
  daso_swarm swarm{[](training_config& c) {
                     local(c, "daso:epochs=18,batches=10,warmup=2,cooldown=2,stability=0.9999");
                   },
                   0}; // it ends by itself
  for (std::size_t i = 0; i < peers; ++i) {
    auto s = swarm.status_of(i);
    EXPECT_EQ(s.epoch.value(), rounds);
    ASSERT_TRUE(s.strategy);
    EXPECT_EQ(s.strategy->epoch, rule.epochs);
    EXPECT_EQ(s.strategy->name, "cool-down");
    EXPECT_EQ(s.schedule_epoch.value(), rule.epochs) << "its epochs, not the rounds";
    EXPECT_GE(s.steps, 180U);
    EXPECT_LE(s.steps, 182U) << "more than its epochs have";
    EXPECT_EQ(s.parameters, swarm.status_of(0).parameters);
    EXPECT_EQ(swarm.parameters_of(i), swarm.parameters_of(0)) << "the last round is a blocking one";
    EXPECT_LT(s.loss, 0.5 * s.first_loss);
    expect_samples_accounted(s);
  }
}

} // namespace
} // namespace waggle::testing
