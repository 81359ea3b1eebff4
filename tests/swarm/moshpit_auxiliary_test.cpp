// Auxiliaries in many groups: they reduce beside the members of a group, in nobody's place.

#include <cmath>
#include <iostream>

#include "tests/support/test_context.hpp"
#include "tests/swarm/moshpit_swarm.hpp"

namespace waggle::testing {
namespace {

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

/// Trainers with steps of 20 ms whose epochs last about two seconds, and auxiliaries.
struct swarm_with_auxiliaries : moshpit_swarm {
  swarm_with_auxiliaries(std::uint64_t seed, std::size_t trainers, std::size_t target)
    : moshpit_swarm(seed, target, 0ms), trainers_(trainers) {
    step_interval = 20ms;
    auto batch = 4 * 50 * 2 * trainers;
    adjust = [this, batch](node_config& config) {
      auto& training = config.training->training;
      training.strategy = "local-updates";
      training.how = {};
      training.how.delay_state = !blocks;
      training.target_batch_size = batch;
      config.progress.ledger.target_batch_size = batch;
      auto& averaging = config.averaging->averaging;
      training.auxiliary = averaging.auxiliary =
        config.averaging->matchmaking.mode == member_mode::auxiliary;
    };
  }
  bool blocks = false;

  void begin_with(std::size_t auxiliaries) {
    for (std::size_t i = 0; i < trainers_; ++i)
      join();
    for (std::size_t i = 0; i < auxiliaries; ++i)
      join("", member_mode::auxiliary);
    ASSERT_TRUE(begin(20s)) << picture(sim);
    sim.run_for(10s);
  }
  [[nodiscard]] bool trains(index i) const { return i < trainers_; }

private:
  std::size_t trainers_;
};

TEST(MoshpitAuxiliary, TakesNobodysPlace) {
  struct setting {
    std::size_t trainers, target, auxiliaries;
    bool blocks;
  };
  for (auto [trainers, target, auxiliaries, blocks] :
       {setting{4, 2, 1, false}, setting{3, 2, 2, true}, setting{8, 4, 1, true}}) {
    SCOPED_TRACE(std::to_string(trainers) + " in groups of " + std::to_string(target));
    swarm_with_auxiliaries without{1, trainers, target};
    swarm_with_auxiliaries with{1, trainers, target};
    without.blocks = with.blocks = blocks;
    without.begin_with(0);
    with.begin_with(auxiliaries);
    auto alone = without.measure(60s);
    auto helped = with.measure(60s);
    std::cout << trainers << " in groups of " << target << ": epochs " << alone.epochs
              << ", averaged " << alone.averaged << "; with " << auxiliaries
              << " auxiliaries: epochs " << helped.epochs << ", averaged " << helped.averaged
              << ", in " << helped.helped << " of the rounds\n";
    EXPECT_GT(helped.epochs, alone.epochs - 1.5);
    EXPECT_GT(helped.averaged, 0.98 * alone.averaged);
    EXPECT_GT(helped.helped, 0.25);
    expect_rounds_kept_the_contract(with.sim, true);
    auto run = with.status_of(0);
    for (auto i : with.sim.living()) {
      if (with.trains(i))
        continue;
      auto s = with.status_of(i);
      EXPECT_EQ(s.steps, 0U);
      EXPECT_EQ(s.past.branch, run.past.branch);
      EXPECT_LE(s.epoch.value(), run.epoch.value() + 1) << "its epochs are the run's";
      EXPECT_GE(s.epoch.value() + 1, run.epoch.value());
      EXPECT_GT(s.rounds_complete, 10U);
      EXPECT_LT(distance(with.parameters_of(i), with.parameters_of(0)), 0.5)
        << "it holds a recent mean";
    }
  }
}

/// How many states this peer has downloaded.
double downloads_of(swarm_with_auxiliaries& swarm, index i) {
  return exported(*swarm.sim[i].node.ctx.metrics,
                  "waggle_state_downloads_total{outcome=\"complete\"");
}

// Its number of epochs is no proof of the age of its state, which it gives to newcomers.
TEST(MoshpitAuxiliary, ThatNoGroupAdmitsDownloadsStates) {
  swarm_with_auxiliaries swarm{1, 4, 2};
  auto common = swarm.adjust;
  swarm.adjust = [common](node_config& config) {
    common(config);
    if (config.training->training.auxiliary)
      config.averaging->matchmaking.schema = sha256("another model");
  };
  swarm.begin_with(1);
  auto before = downloads_of(swarm, 4);
  auto began = swarm.status_of(4);
  swarm.sim.run_for(30s); // 15 epochs
  auto s = swarm.status_of(4);
  EXPECT_EQ(s.rounds_complete, began.rounds_complete);
  EXPECT_EQ(s.rounds_failed, 0U);
  EXPECT_EQ(text_of(s.notices), "") << "it is no failure that no group needs it";
  EXPECT_GT(s.epoch.value(), began.epoch.value() + 10);
  EXPECT_GE(downloads_of(swarm, 4), before + 4);
}

// The reducers of its parts are replaced in the round, as those of any member.
TEST(MoshpitAuxiliary, ThatDiesOrFreezesCostsNobodyAMean) {
  for (std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    swarm_with_auxiliaries swarm{seed, 4, 2};
    swarm.begin_with(2);
    random_source random{seed};
    swarm.sim.run_for(milliseconds{random.below(2000)});
    swarm.sim.crash(4, random.below(2) == 0);
    swarm.sim.run_for(milliseconds{random.below(2000)});
    swarm.sim.freeze(5);
    auto seen = swarm.measure(30s);
    swarm.sim.thaw(5);
    EXPECT_GT(seen.epochs, 12) << "of 15" << picture(swarm.sim);
    EXPECT_GT(seen.averaged, 0.85);
    swarm.sim.run_for(20s);
    expect_rounds_kept_the_contract(swarm.sim, true);
    auto run = swarm.status_of(0);
    auto back = swarm.status_of(5);
    EXPECT_EQ(back.past.branch, run.past.branch);
    EXPECT_GE(back.epoch.value() + 1, run.epoch.value()) << "it has caught up";
  }
}

} // namespace
} // namespace waggle::testing
