#include "runtime/net/kept_clock.hpp"

#include <gtest/gtest.h>

namespace waggle::net {
namespace {

struct hand_set final : wall_clock {
  [[nodiscard]] swarm_time now() const override { return time; }
  swarm_time time{1'000s};
};

struct KeptClock : ::testing::Test {
  void pass(std::chrono::seconds seconds) {
    steady += seconds;
    machine->time += seconds;
  }
  [[nodiscard]] swarm_clock::duration ahead() const { return machine->time - clock.now(); }

  std::shared_ptr<hand_set> machine = std::make_shared<hand_set>();
  steady_time steady{50s};
  kept_clock clock{machine, [this] { return steady; }};
};

TEST_F(KeptClock, IsThatOfTheMachineUntilAPeerIsMet) {
  machine->time += 1h;
  EXPECT_EQ(ahead(), 0s);
  EXPECT_EQ(clock.compared(0s), 0s);
  pass(10s);
  EXPECT_EQ(ahead(), 0s);
}

TEST_F(KeptClock, GoesOnWhenTheMachinesClockIsSet) {
  (void)clock.compared(0s);
  pass(10s);
  for (auto by : {120s, -3'720s}) {
    machine->time += by;
    EXPECT_EQ(clock.compared(1s), 0s) << "another peer, which agrees";
    pass(10s);
  }
  EXPECT_EQ(ahead(), -1h);
  EXPECT_EQ(clock.machine_ahead(), -1h);
}

TEST_F(KeptClock, FollowsTheMachinesOnceAPeerAgreesWithThatOne) {
  (void)clock.compared(60s); // it was wrong at the start
  EXPECT_EQ(clock.compared(60s), 0s) << "and nobody has set it yet";
  machine->time += 61s;
  EXPECT_EQ(clock.compared(60s), 61s);
  EXPECT_EQ(ahead(), 0s);
}

TEST_F(KeptClock, DoesNotMoveForAPeerWhoseClockAgreesWithNeither) {
  (void)clock.compared(0s);
  machine->time += 120s;
  for (auto offset :
       {swarm_clock::duration{50s}, swarm_clock::duration{-120s}, swarm_clock::duration{1h},
        swarm_clock::duration::max(), -swarm_clock::duration::max()})
    EXPECT_EQ(clock.compared(offset), 0s);
  EXPECT_EQ(ahead(), 120s);
}

} // namespace
} // namespace waggle::net
