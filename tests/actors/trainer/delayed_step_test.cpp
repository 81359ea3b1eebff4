// Passes go on while an update is applied.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct DelayedStep : training_world {
  static training_config delayed() {
    auto config = defaults();
    config.delay_optimizer_step = true;
    return config;
  }
};

TEST_F(DelayedStep, PassesGoOnWhileAnUpdateIsApplied) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(3); });
  a.gate->updates = true;
  pass_until([&] { return !a.gate->held.empty(); });
  auto passes = a.probe->micro_steps;
  auto applied = a.probe->applied.size();
  pass(50ms);
  EXPECT_GE(a.probe->micro_steps, passes + 4);
  EXPECT_EQ(a.probe->applied.size(), applied);
  a.gate->open();
  pass_until([&] { return all_at(8); });
}

TEST_F(DelayedStep, AGradientIsAtMostOneUpdateLate) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(3); });
  a.gate->updates = true;
  pass_until([&] { return a.gate->held.size() == 2; });
  auto passes = a.probe->micro_steps;
  pass(1s);
  EXPECT_LE(a.probe->micro_steps, passes + 1) << "a pass would read parameters two updates old";
  EXPECT_EQ(a.gate->held.size(), 2U);
  a.gate->open();
  pass_until([&] { return all_at(8); });
}

// A pass beside the worker may end after the state that it reads was replaced.
TEST_F(DelayedStep, APassThatOutlivesItsStateIsDropped) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(4); });
  hold_views = true; // b begins a history of its own
  auto& b = add_started(delayed(), toy_options{.init_seed = 99, .data_seed = 2});
  pass_until([&] { return b.probe->micro_steps > 3; });
  b.gate->passes = true;
  pass_until([&] { return !b.gate->held.empty(); });
  hold_views = false;
  spread(); // a's history has more work
  pass_until([&] { return status_of(b).state_downloads == 1; });
  auto dropped = status_of(b).samples_dropped;
  b.gate->open();
  settle();
  EXPECT_EQ(status_of(b).samples_dropped, dropped + 4);
  pass_until([&] { return all_at(12); });
  EXPECT_EQ(status_of(a).group_size, 2U);
}

TEST_F(DelayedStep, StoppingWaitsForTheRunningPass) {
  auto& a = add_started(delayed());
  pass_until([&] { return all_at(2); });
  a.gate->passes = true;
  pass_until([&] { return !a.gate->held.empty(); });
  auto stopped = ask_later<training_status>(a.actor, stop_training{});
  settle();
  EXPECT_FALSE(stopped.answered());
  a.gate->open();
  settle();
  auto last = stopped.get();
  EXPECT_EQ(last->samples_toward_epoch, 0U);
  EXPECT_EQ(4 * a.probe->micro_steps, last->samples_used + last->samples_dropped);
}

TEST_F(DelayedStep, PeersHoldEqualParametersWhoeverDelays) {
  auto& a = add_started(delayed());
  auto& b = add_started(joining());
  pass_until([&] { return all_at(10); });
  hold_rounds = true;
  pass(500ms);
  EXPECT_EQ(a.probe->applied, b.probe->applied);
}

} // namespace
} // namespace waggle::testing
