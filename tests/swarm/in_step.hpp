#pragma once

// Swarms whose connected peers have to agree on one history, and soon.

#include "tests/swarm/training_swarm.hpp"

namespace waggle::testing {

class InStep : public ::testing::Test, protected trainers {
protected:
  InStep() : trainers(7) {}

  /// `size` peers that have trained together for a while.
  void begin(std::size_t size) {
    add(endless(1), {});
    for (std::size_t i = 1; i < size; ++i)
      add(endless(i + 1), {0});
    ASSERT_TRUE(sim.run_until([&] { return together(); }, 10s)) << picture(sim);
    sim.run_for(3s);
  }

  double seconds_until_together(std::chrono::nanoseconds limit = 30s) {
    auto begin = sim.seconds();
    EXPECT_TRUE(sim.run_until([&] { return together(); }, limit)) << picture(sim);
    return sim.seconds() - begin;
  }
  /// All peers that are together also take part in the rounds of the next four seconds.
  void expect_to_stay_together() {
    for (int i = 0; i < 8; ++i) {
      sim.run_for(500ms);
      EXPECT_TRUE(together()) << picture(sim);
    }
  }
};

} // namespace waggle::testing
