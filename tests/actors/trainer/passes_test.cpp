// What a trainer makes of passes with a scaled loss, and of a gradient that passes add to in place.

#include <gmock/gmock.h>

#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct TrainerPasses : training_world {
  double metric(const member& m, const std::string& series) {
    return exported(*m.ctx.metrics, series);
  }
  double overflows(const member& m) {
    return metric(m, "waggle_training_loss_scale_overflows_total");
  }
  double not_finite(const member& m) {
    return metric(m, R"(waggle_training_samples_discarded_total{reason="not_finite")");
  }
  /// A pass of 4 samples whose gradient overflowed.
  static micro_step overflow(double scale) {
    micro_step step{0.5, 4, false};
    step.scale = scale;
    step.overflow = true;
    return step;
  }
};

TEST_F(TrainerPasses, OverflowsAreCountedAndTheRestOfTheEpochStays) { // F16, INV-2
  auto& m = add();
  m.probe->fakes = {overflow(65536), overflow(32768)};
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(1); });
  EXPECT_EQ(overflows(m), 2);
  EXPECT_EQ(not_finite(m), 8);
  EXPECT_EQ(metric(m, "waggle_training_loss_scale{"), 32768);
  EXPECT_EQ(metric(m, R"(waggle_training_nonfinite_total{where="gradient")"), 0)
    << "an overflow is no sign of a broken model";
  EXPECT_EQ(status_of(m).samples_used, 32U);
  EXPECT_EQ(status_of(m).samples_dropped, 8U);
}

TEST_F(TrainerPasses, AGradientThatIsNotFiniteIsAWarningThatSaysWhatToChange) {
  auto config = defaults();
  config.step_interval = 1s; // few passes in the time between two warnings
  auto& m = add(config);
  keep_log(m);
  m.probe->fakes = {{0.5, 4, false}, overflow(65536), {0.5, 4, false}};
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(2); });
  auto warnings = [&] {
    std::size_t n = 0;
    auto text = m.said.str();
    for (auto at = text.find("NaN"); at != std::string::npos; at = text.find("NaN", at + 1))
      ++n;
    return n;
  };
  EXPECT_EQ(metric(m, R"(waggle_training_nonfinite_total{where="gradient")"), 2);
  EXPECT_EQ(warnings(), 1U) << "at once, and then not for each pass";
  EXPECT_THAT(m.said.str(), ::testing::AllOf(::testing::HasSubstr("lower --lr"),
                                             ::testing::HasSubstr("--max-gradient-norm"),
                                             ::testing::HasSubstr("--loss-scale")));
  pass(run_health::log_interval);
  EXPECT_EQ(warnings(), 1U) << "all passes were finite";
  m.probe->fakes = {{0.5, 4, false}};
  pass_until([&] { return m.probe->fakes.empty(); });
  EXPECT_EQ(warnings(), 2U);
}

TEST_F(TrainerPasses, WhatAPassLeavesOutOfTheDataIsAWarning) {
  auto& m = add();
  keep_log(m);
  m.probe->fakes = {overflow(65536)};
  m.probe->fakes.front().left_out = "a.jsonl, byte 7";
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(1); });
  EXPECT_THAT(m.said.str(), ::testing::HasSubstr("left out: a.jsonl, byte 7"));
}

TEST_F(TrainerPasses, OnlyOverflowsOfADynamicScaleAreNoWarning) {
  auto& m = add();
  keep_log(m);
  m.probe->fakes = {overflow(65536), overflow(32768)};
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(1); });
  EXPECT_EQ(overflows(m), 2);
  EXPECT_THAT(m.said.str(), ::testing::Not(::testing::HasSubstr("NaN")));
}

TEST_F(TrainerPasses, OverflowsAreCountedInStrategiesThatStepWithEachPass) {
  auto config = defaults();
  config.strategy = "local-updates";
  auto& m = add(config);
  m.probe->fakes = {overflow(65536)};
  tell(m.actor, start_training{});
  pass_until([&] { return all_at(2); });
  EXPECT_EQ(overflows(m), 1);
  EXPECT_EQ(status_of(m).samples_dropped, 4U);
  EXPECT_EQ(m.probe->rates.size() + 1, m.probe->micro_steps) << "no step with that gradient";
}

TEST_F(TrainerPasses, WithoutAScalerThereIsNoScale) {
  auto& m = add_started();
  pass_until([&] { return all_at(1); });
  EXPECT_EQ(m.ctx.metrics->text().find("waggle_training_loss_scale{"), std::string::npos);
}

TEST_F(TrainerPasses, SamplesThatAreLostWithASumAreCounted) { // INV-2
  auto& m = add();
  m.probe->adds_in_place = true;
  tell(m.actor, start_training{});
  pass_until([&] { return status_of(m).samples_toward_epoch == 12; });
  m.probe->fakes = {overflow(65536)};
  pass_until([&] { return m.probe->fakes.empty(); });
  EXPECT_EQ(not_finite(m), 16);
  micro_step dropped{0.5, 4, true}; // the sum was dropped while it ran
  dropped.lost = 4;
  m.probe->fakes = {dropped};
  pass_until([&] { return all_at(1); });
  EXPECT_EQ(metric(m, R"(waggle_training_samples_discarded_total{reason="left_out")"), 4);
  EXPECT_EQ(status_of(m).samples_used, 32U);
  EXPECT_EQ(status_of(m).samples_dropped, 20U);
}

TEST_F(TrainerPasses, OwnParametersThatAreNotFiniteAreCountedAsSuch) {
  auto config = defaults();
  config.strategy = "local-updates";
  add_started(config);
  config.join_timeout = 5s;
  config.schedule.peak = 1e30;
  auto& m = add_started(config);
  auto parameters = R"(waggle_training_nonfinite_total{where="parameters")";
  pass_until([&] { return metric(m, parameters) > 0; });
  EXPECT_EQ(metric(m, R"(waggle_training_nonfinite_total{where="gradient")"), 0);
}

/// Two peers. A pass of the first one runs when the other one calls a round.
struct RoundCalledDuringAPass : TrainerPasses {
  void call(bool in_place, bool delayed) {
    auto config = defaults();
    config.how.delay_gradients = delayed;
    first = &add(config);
    first->probe->adds_in_place = in_place;
    tell(first->actor, start_training{});
    add_started(joining(config));
    pass_until([&] { return all_at(1); });
    hold_passes = hold_rounds = true;
    pass_until([&] { return !first->held.empty(); });
    asked = first->questions.size();
    tell(first->actor, round_called{status_of(*first).epoch});
  }
  void end_passes() {
    hold_passes = false;
    for (const auto& m : members)
      for (const auto& done : std::exchange(m->held, {}))
        tell(caf::actor_cast<model_listener_actor>(m->actor), done);
  }
  void expect_that_it_waits() {
    EXPECT_EQ(first->questions.size(), asked);
    pass(1s);
    EXPECT_EQ(first->questions.size(), asked);
    end_passes();
    ASSERT_EQ(first->questions.size(), asked + 1);
    double contributed = 0;
    for (const auto& question : first->questions)
      contributed += question.weight;
    EXPECT_EQ(contributed, first->probe->micro_steps * 4) << "with the samples of that pass";
    release_rounds();
    auto epoch = status_of(*first).epoch.value();
    pass_until([&] { return all_at(epoch + 3); });
    EXPECT_EQ(status_of(*first).samples_dropped, 0U);
  }
  member* first = nullptr;
  std::size_t asked = 0; // rounds of the first one, before the call
};

/// Only between two passes can its parameters be copied, as those of a user's loop.
struct RoundOfParametersCalledDuringAPass : TrainerPasses {
  member& call() {
    auto config = defaults();
    config.strategy = "local-updates";
    auto& m = add_started(config, toy_options{.buffer = true});
    pass_until([&] { return all_at(1); });
    auto steps = m.probe->micro_steps;
    pass_until([&] { return m.probe->micro_steps > steps + 1; }); // toward the next round
    hold_passes = true;
    pass_until([&] { return !m.held.empty(); });
    asked = m.questions.size();
    tell(m.actor, round_called{status_of(m).epoch});
    pass(900ms);
    EXPECT_EQ(m.questions.size(), asked);
    return m;
  }
  void end_pass(member& m) {
    hold_passes = false;
    for (const auto& done : std::exchange(m.held, {}))
      tell(caf::actor_cast<model_listener_actor>(m.actor), done);
  }
  std::size_t asked = 0;
};

TEST_F(RoundOfParametersCalledDuringAPass, WaitsForThePass) {
  auto& m = call();
  end_pass(m);
  ASSERT_GT(m.questions.size(), asked);
  EXPECT_EQ(m.questions[asked].weight, 1);
}

TEST_F(RoundOfParametersCalledDuringAPass, GoesOnWithoutThePeerIfThePassDoesNotEnd) {
  auto& m = call();
  pass(200ms);
  ASSERT_EQ(m.questions.size(), asked + 1);
  EXPECT_EQ(m.questions[asked].weight, 0);
  auto before = status_of(m);
  end_pass(m);
  pass_until([&] { return status_of(m).epoch.value() > before.epoch.value() + 1; });
  EXPECT_EQ(m.questions[asked + 1].weight, 1) << "its own parameters stayed";
}

TEST_F(RoundCalledDuringAPass, BeginsAtOnce) {
  call(false, false);
  EXPECT_EQ(first->questions.size(), asked + 1);
  end_passes();
  EXPECT_EQ(first->questions.size(), asked + 1);
}

/// The worker says that a pass has ended a little after its gradient is there.
TEST_F(TrainerPasses, APassWhoseGradientARoundHasCountsTowardNoOther) {
  auto config = defaults();
  config.strategy = "data-parallel";
  auto& first = add_started(config);
  auto& other = add_started(config);
  pass_until([&] { return all_at(2); });
  hold_passes = true;
  pass_until([&] { return !first.held.empty() && !other.held.empty(); });
  auto deliver_passes = [&](member& m) {
    for (const auto& done : std::exchange(m.held, {}))
      tell(caf::actor_cast<model_listener_actor>(m.actor), done);
  };
  auto asked = first.questions.size();
  tell(first.actor, round_called{status_of(first).epoch});
  tell(other.actor, round_called{status_of(other).epoch});
  ASSERT_EQ(first.questions.size(), asked + 1);
  ASSERT_GT(first.questions.back().weight, 0);
  deliver_passes(first);
  deliver_passes(other);
  pass_until([&] { return !other.held.empty(); });
  deliver_passes(other); // its next pass is first
  settle();
  EXPECT_EQ(first.questions.size(), asked + 1) << "it has made none";
  hold_passes = false;
  deliver_passes(first);
  deliver_passes(other);
  auto epoch = status_of(first).epoch.value();
  pass_until([&] { return all_at(epoch + 2); });
  for (const auto& question : first.questions)
    EXPECT_GT(question.weight, 0);
}

TEST_F(RoundCalledDuringAPass, WaitsForAPassThatAddsInPlace) {
  call(true, false);
  expect_that_it_waits();
}

TEST_F(RoundCalledDuringAPass, WaitsForItAlsoWithDelayedGradients) {
  call(true, true);
  expect_that_it_waits();
}

} // namespace
} // namespace waggle::testing
