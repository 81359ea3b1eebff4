// The rate of each update is the schedule's at its epoch, in every mode,
// whatever step of the loop makes it.

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
  static bool steps_locally() { return find_strategy(GetParam().strategy)->averages_parameters(); }
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
  auto& joiner = add_started(joining(config), toy_options{.init_seed = 99, .data_seed = 2});
  spread();
  pass_until([&] { return has_finished(m) && has_finished(joiner); });
  ASSERT_EQ(status_of(joiner).state_downloads, 1U);
  ASSERT_TRUE(received);
  ASSERT_GE(*received, epoch_id{3});
  ASSERT_LT(*received, epoch_id{epochs - 3});
  expect_rates(m, config.schedule, 0, epochs);
  expect_rates(joiner, config.schedule, received->value(), epochs);
}

// -- schedules whose epochs do not end with the rounds --------------------------------------------

struct ScheduleEpochs : training_world {
  static training_config stepping(const char* strategy) {
    auto config = defaults();
    config.strategy = strategy;
    config.schedule = *make_schedule(*parse_schedule("step:every=1,factor=0.8"), 0.1, 0, 0);
    return config;
  }
  /// The epoch of the schedule for each step of the member.
  static std::vector<std::uint64_t> epochs_of(const member& m, const lr_schedule& schedule) {
    std::vector<std::uint64_t> all;
    for (double rate : m.probe->rates) {
      std::uint64_t epoch = all.empty() ? 0 : all.back();
      while (epoch < 1'000 && schedule.at(epoch_id{epoch}) > rate)
        ++epoch;
      EXPECT_EQ(schedule.at(epoch_id{epoch}), rate) << "the rate of no epoch, or it has risen";
      all.push_back(epoch);
    }
    return all;
  }
};

// While a round blocks, no sample counts toward the next one yet.
TEST_F(ScheduleEpochs, AreTheLastOfTheRoundWhileItBlocks) {
  auto config = stepping("local-updates");
  config.how.epochs_per_round = 4;
  config.how.delay_state = false;
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).epoch >= epoch_id{2}; });
  hold_rounds = true;
  pass_until([&] { return !m.answers.empty(); });
  auto s = status_of(m);
  EXPECT_EQ(s.schedule_epoch.value(), 4 * s.epoch.value() + 3);
  EXPECT_EQ(s.learning_rate, config.schedule.at(s.schedule_epoch));
  release_rounds();
  pass(20ms);
  EXPECT_EQ(status_of(m).schedule_epoch.value() / 4, s.epoch.value() + 1);
}

TEST_F(ScheduleEpochs, AreTheBatchesOfAPeerIfTheyAreTheUnit) {
  auto config = stepping("decentralized-sgd");
  config.how.steps_period = 5;
  config.how.unit = schedule_unit::batches;
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).epoch >= epoch_id{6}; });
  auto epochs = epochs_of(m, config.schedule);
  ASSERT_GE(epochs.size(), 30U);
  for (std::uint64_t i = 0; i < epochs.size(); ++i)
    EXPECT_EQ(epochs[i], i);
}

// The parameters keep these steps, so they are counted in the next round.
TEST_F(ScheduleEpochs, ContainTheStepsOfRoundsThatFailed) {
  auto config = stepping("decentralized-sgd");
  config.how.steps_period = 5;
  config.how.steps_in_epoch = 40;
  auto& a = add_started(config);
  pass(3ms);
  auto& b = add_started(joining(config));
  spread();
  pass_until([&] { return all_at(6); });
  round_fault = [&](const member& m, epoch_id epoch) {
    return &m == &b && epoch.value() % 3 == 0 ? ec::peer_lost : ec::none;
  };
  pass_until([&] { return status_of(a).epoch >= epoch_id{20}; });
  round_fault = [](const member&, epoch_id) { return ec::none; };
  pass_until([&] { return all_at(26); });
  ASSERT_GT(status_of(b).rounds_failed, 2U);
  // Rounds that b did not finish have a's steps alone.
  auto all = a.probe->rates.size() + b.probe->rates.size();
  auto lost = status_of(b).state_downloads > 1 ? 5 * status_of(b).rounds_failed : 0;
  EXPECT_LE(status_of(a).past.steps, all);
  EXPECT_GE(status_of(a).past.steps + 20 + lost, all);
}

TEST_F(ScheduleEpochs, GoOnFromACheckpoint) {
  auto files = std::make_shared<memory_disk>();
  auto config = stepping("decentralized-sgd");
  config.how.steps_period = 5;
  config.how.steps_in_epoch = 15;
  config.checkpoints.emplace(files, "kept");
  auto& m = add_started(config);
  pass_until([&] { return status_of(m).epoch >= epoch_id{7}; });
  auto before = ask<training_status>(m.actor, stop_training{});
  ASSERT_GE(before->past.steps, 35U);
  end(m);
  auto& again = add_started(config);
  pass_until([&] { return status_of(again).epoch > before->epoch; });
  ASSERT_FALSE(again.probe->rates.empty());
  EXPECT_EQ(again.probe->rates.front(), config.schedule.at(epoch_id{before->past.steps / 15}));
  // Steps that no round had counted when the process stopped are counted now.
  auto all = m.probe->rates.size() + again.probe->rates.size();
  auto counted = status_of(again).past.steps;
  EXPECT_LE(counted, all);
  EXPECT_LT(all - counted, 5U);
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
