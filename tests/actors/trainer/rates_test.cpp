// The rate of each update is the schedule's at its epoch, in every mode (spec/optimizer.md §10,
// F11).

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>

#include "runtime/training/schedule_text.hpp"
#include "tests/actors/trainer/training_world.hpp"

namespace waggle::testing {
namespace {

struct mode {
  const char* name;
  std::string strategy;
  bool delay_gradients = false;
  bool delay_step = false;
  bool delay_state = true;
};

class Rates : public training_world, public ::testing::WithParamInterface<mode> {
protected:
  static training_config config_of(std::uint64_t epochs) {
    auto config = defaults();
    config.strategy = GetParam().strategy;
    config.how.delay_gradients = GetParam().delay_gradients;
    config.how.delay_state = GetParam().delay_state;
    config.how.steps_period = 5;
    config.delay_optimizer_step = GetParam().delay_step;
    config.schedule = *make_schedule(*parse_schedule("step:every=1,factor=0.8"), 0.1, 0, epochs);
    config.max_epochs = epochs;
    return config;
  }
  static bool steps_locally() { return find_strategy(GetParam().strategy)->averages_parameters; }
  static bool trains_during_rounds() {
    return steps_locally() ? GetParam().delay_state : GetParam().delay_gradients;
  }
  bool has_finished(const member& m) { return status_of(m).phase == trainer_phase::finished; }

  /// The epoch of each optimizer step: an update ends its epoch, a local step belongs to the epoch
  /// whose round begins after it.
  static std::vector<std::uint64_t> epochs_of_steps(const member& m, std::uint64_t first) {
    std::vector<std::uint64_t> all(m.probe->rates.size());
    std::iota(all.begin(), all.end(), first);
    if (!steps_locally())
      return all;
    EXPECT_EQ(all.size(), m.probe->micro_steps);
    for (std::uint64_t i = 0; i < all.size(); ++i) {
      auto round = std::upper_bound(m.steps_before.begin(), m.steps_before.end(), i);
      all[i] =
        round == m.steps_before.end()
          ? m.questions.back().epoch.value() + 1
          : m.questions[static_cast<std::size_t>(round - m.steps_before.begin())].epoch.value();
    }
    return all;
  }
  static void expect_rates(const member& m, const lr_schedule& schedule, std::uint64_t first,
                           std::uint64_t end) {
    auto epochs = epochs_of_steps(m, first);
    ASSERT_FALSE(epochs.empty());
    EXPECT_EQ(epochs.front(), first);
    EXPECT_EQ(epochs.back() + 1, end);
    for (std::size_t i = 0; i < epochs.size(); ++i)
      EXPECT_EQ(m.probe->rates[i], schedule.at(epoch_id{epochs[i]}))
        << "step " << i << " of epoch " << epochs[i];
    EXPECT_NE(schedule.at(epoch_id{first}), schedule.at(epoch_id{first + 1}));
  }
};

// Rounds, and updates where passes go on beside them, take as long as some passes.
TEST_P(Rates, AreThoseOfTheSchedule) {
  constexpr std::uint64_t epochs = 6;
  auto config = config_of(epochs);
  auto& m = add(config);
  m.gate->updates = GetParam().delay_step;
  hold_rounds = true;
  tell(m.actor, start_training{});
  std::uint64_t during_rounds = 0;
  while (!has_finished(m)) {
    pass_until([&] { return !m.answers.empty() || !m.gate->held.empty() || has_finished(m); });
    auto steps = m.probe->micro_steps;
    bool averaging = !m.answers.empty();
    pass(25ms);
    during_rounds += averaging ? m.probe->micro_steps - steps : 0;
    m.gate->open();
    m.gate->updates = GetParam().delay_step;
    release_rounds();
    hold_rounds = true;
    if (HasFailure())
      return;
  }
  m.gate->open();
  settle();
  EXPECT_EQ(during_rounds > 0, trains_during_rounds());
  expect_rates(m, config.schedule, 0, epochs);
}

TEST_P(Rates, OfAJoinerAreThoseOfTheRunsEpochs) {
  constexpr std::uint64_t epochs = 12;
  auto config = config_of(epochs);
  auto& m = add_started(config);
  pass_until([&] { return all_at(3); });
  std::optional<epoch_id> received;
  spoil_state = [&](std::size_t, const std::string& image) {
    if (auto state = decode_state(as_byte_span(image)); state.ok())
      received = state->epoch;
  };
  pass(3ms); // so that the two do not make their passes at the same time
  config.join_timeout = 5s;
  auto& joiner = add_started(config, toy_options{.init_seed = 99, .data_seed = 2});
  spread();
  pass_until([&] { return has_finished(m) && has_finished(joiner); });
  ASSERT_EQ(status_of(joiner).state_downloads, 1U);
  ASSERT_TRUE(received);
  ASSERT_GE(*received, epoch_id{3});
  ASSERT_LT(*received, epoch_id{epochs - 3});
  expect_rates(m, config.schedule, 0, epochs);
  expect_rates(joiner, config.schedule, received->value(), epochs);
}

INSTANTIATE_TEST_SUITE_P(
  Modes, Rates,
  ::testing::Values(mode{"Collaborative", "collaborative"},
                    mode{"DelayedGradients", "collaborative", true},
                    mode{"DelayedStep", "collaborative", false, true},
                    mode{"DelayedGradientsAndStep", "collaborative", true, true},
                    mode{"LocalUpdates", "local-updates"},
                    mode{"LocalUpdatesWithBlockingRounds", "local-updates", false, false, false},
                    mode{"DecentralizedSgd", "decentralized-sgd"}),
  [](const auto& one) { return std::string{one.param.name}; });

} // namespace
} // namespace waggle::testing
