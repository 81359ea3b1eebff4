#pragma once

// Swarms whose connected peers have to come to hold one history, and soon.

#include "runtime/training/checkpoint_store.hpp"
#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {

class InStep : public ::testing::Test {
protected:
  explicit InStep(std::uint64_t seed = 7) : sim(seed) {}

  static node_config endless(std::uint64_t data_seed) {
    auto config = training_node(data_seed);
    config.training->training.max_epochs = 0;
    // A fifth of a second for four peers.
    config.training->training.target_batch_size = 32;
    config.progress.ledger.target_batch_size = 32;
    return config;
  }
  static node_config with_checkpoints(std::uint64_t data_seed, std::shared_ptr<memory_disk> files) {
    auto config = endless(data_seed);
    config.training->training.checkpoints.emplace(std::move(files), "/data");
    return config;
  }
  index add(node_config config, const std::vector<index>& through) {
    if (through.empty())
      config.training->training.join_timeout = 0ms;
    return sim.start(std::move(config), through);
  }
  /// `size` peers that have trained together for a while.
  void begin(std::size_t size) {
    add(endless(1), {});
    for (std::size_t i = 1; i < size; ++i)
      add(endless(i + 1), {0});
    ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
    sim.run_for(3s);
  }

  training_status status_of(index i) {
    auto status = sim.ask<training_status>(sim[i].node.parts.trainer, get_training_status{});
    return status.value_or(training_status{});
  }
  /// All living peers are in one group, at the same epoch or one apart, of one history.
  bool together() { return together(sim.living()); }
  bool together(const std::vector<index>& peers) { return together(peers, peers.size()); }
  /// `members`: of the group, with those who do not train.
  bool together(const std::vector<index>& peers, std::size_t members) {
    std::optional<training_status> first;
    for (auto i : peers) {
      auto s = status_of(i);
      bool works = s.phase == trainer_phase::training || s.phase == trainer_phase::averaging;
      if (!works || s.group_size != members)
        return false;
      if (first
          && (s.line.branch != first->line.branch || s.epoch.value() > first->epoch.value() + 1
              || first->epoch.value() > s.epoch.value() + 1))
        return false;
      if (!first)
        first = s;
    }
    return true;
  }
  double seconds_until_together(std::chrono::nanoseconds limit = 30s) {
    auto begin = sim.seconds();
    EXPECT_TRUE(sim.run_until([&] { return together(); }, limit)) << picture(sim);
    return sim.seconds() - begin;
  }
  /// Whoever is together takes part in the rounds of the next four seconds, too.
  void expect_to_stay_together() {
    for (int i = 0; i < 8; ++i) {
      sim.run_for(500ms);
      EXPECT_TRUE(together()) << picture(sim);
    }
  }

  simulation sim;
};

} // namespace waggle::testing
