#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <tuple>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/training/learner_layer.hpp"
#include "runtime/training/plateau.hpp"
#include "runtime/training/strategies/daso_schedule.hpp"
#include "runtime/training/strategy.hpp"
#include "tests/support/states.hpp"
#include "tests/support/toy_learner.hpp"

namespace waggle {
namespace {

using skips = daso_schedule::skips;

nlohmann::json vectors() {
  std::ifstream file{WAGGLE_SOURCE_DIR "/tests/runtime/training/daso_vectors.json"};
  return nlohmann::json::parse(file);
}

skips skips_of(const nlohmann::json& numbers) {
  return {numbers[0], numbers[1], numbers[2]};
}

/// A schedule in an epoch with these skips.
daso_schedule with_skips(std::uint64_t last, const skips& now) {
  daso_rule rule{.batches = last + 1, .max_skips = 1024};
  std::vector<float> values(daso_schedule::value_count);
  values[0] = 10;
  values[2] = static_cast<float>(now.global);
  values[3] = static_cast<float>(now.local);
  values[4] = static_cast<float>(now.wait);
  values[5] = std::numeric_limits<float>::max();
  auto made = daso_schedule::decode(rule, values);
  EXPECT_TRUE(made.ok());
  return *made;
}

TEST(DasoSchedule, FollowsTheLossEpochForEpoch) {
  for (const auto& run : vectors()["epochs"]) {
    daso_rule rule;
    if (run.contains("rule")) {
      const auto& r = run["rule"];
      rule = {.epochs = r["epochs"],
              .warmup = r["warmup"],
              .cooldown = r["cooldown"],
              .max_skips = r["max_skips"],
              .skip_reduction = r["skip_reduction"]};
    }
    daso_schedule schedule{rule};
    for (std::size_t i = 0; i < run["losses"].size(); ++i) {
      schedule.end_epoch(run["losses"][i]);
      EXPECT_EQ(schedule.epochs_done(), i + 1);
      EXPECT_TRUE(schedule.now() == skips_of(run["skips"][i]))
        << "epoch " << i + 1 << ": " << schedule.now().global << ", " << schedule.now().local
        << ", " << schedule.now().wait;
    }
  }
}

TEST(DasoSchedule, SendsAndMergesBatchForBatch) {
  for (const auto& run : vectors()["batches"]) {
    std::uint64_t last = run["last"];
    auto schedule = with_skips(last, skips_of(run["skips"]));
    std::vector<std::tuple<std::uint64_t, std::string, std::uint64_t, std::uint64_t>> events;
    std::uint64_t before = 0; // batches until the round before, inclusive
    for (std::uint64_t number = 0; before <= last; ++number) {
      auto round = schedule.next(number);
      EXPECT_EQ(round.begun + 1, before + round.after);
      before = round.begun + 1;
      auto sender = number % 4;
      events.emplace_back(round.begun, round.behind > 0 ? "send" : "mean", sender, round.behind);
      if (round.behind > 0)
        events.emplace_back(round.merged, "merge", sender, round.behind);
      else
        EXPECT_EQ(round.merged, round.begun);
    }
    decltype(events) expected;
    for (const auto& e : run["events"])
      expected.emplace_back(e[0], e[1], e[2], e[3]);
    // What is merged when the next round begins is merged first.
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
      return std::pair{std::get<0>(a), std::get<1>(a) != "merge"}
             < std::pair{std::get<0>(b), std::get<1>(b) != "merge"};
    });
    EXPECT_EQ(events, expected) << run["skips"];
  }
}

TEST(DasoSchedule, CountsTheLossesOfRoundsByTheirBatches) {
  daso_rule rule{.epochs = 100, .batches = 10, .warmup = 1, .cooldown = 0};
  daso_schedule schedule{rule};
  for (int i = 0; i < 10; ++i)
    schedule.end_round(1);
  EXPECT_EQ(schedule.now().global, 4U);
  auto epoch = [&](float first, float others) { // rounds after 1, 4, 4 and 1 batches
    schedule.end_round(first);
    for (int i = 0; i < 3; ++i)
      schedule.end_round(others);
  };
  epoch(5, 0); // mean 0.5, which improves
  epoch(5, 0);
  epoch(0.5, 0.5);
  EXPECT_EQ(schedule.now().global, 4U);
  epoch(5, 0);
  EXPECT_EQ(schedule.now().global, 2U) << "the third of the same loss";
  EXPECT_EQ(schedule.epochs_done(), 5U);
}

TEST(DasoSchedule, LossesThatAreNotKnownDecideNothing) {
  daso_schedule schedule{{.epochs = 100, .batches = 2, .warmup = 1}};
  for (int i = 0; i < 20; ++i)
    schedule.end_round(plateau::unknown_loss);
  EXPECT_EQ(schedule.now().global, 4U);
  EXPECT_EQ(schedule.epochs_done(), 10U);
}

TEST(DasoSchedule, ContinuesFromItsValuesAtAnyMoment) {
  daso_rule rule{.epochs = 30, .batches = 5, .warmup = 1, .cooldown = 2};
  daso_schedule schedule{rule};
  for (int i = 0; i < 100; ++i) {
    auto values = schedule.encode();
    auto copy = daso_schedule::decode(rule, values);
    ASSERT_TRUE(copy.ok()) << i;
    auto loss = 1.0F + 0.1F * static_cast<float>(i % 7);
    schedule.end_round(loss);
    copy->end_round(loss);
    EXPECT_EQ(copy->encode(), schedule.encode()) << i;
    EXPECT_EQ(copy->next(), schedule.next());
  }
}

TEST(DasoSchedule, RefusesWhatNoLossesLeadTo) {
  daso_rule rule;
  auto good = daso_schedule{rule}.encode();
  EXPECT_TRUE(daso_schedule::decode(rule, good).ok());
  EXPECT_FALSE(daso_schedule::decode(rule, std::span{good}.first(3)).ok());
  for (auto [i, value] :
       {std::pair{0, -1.0F}, std::pair{0, 0.5F}, std::pair{1, 50.0F}, std::pair{2, 9.0F},
        std::pair{2, 4.0F}, std::pair{3, 1.0F}, std::pair{4, 1e30F}, std::pair{5, NAN},
        std::pair{6, 3.0F}, std::pair{7, INFINITY}, std::pair{8, 51.0F}, std::pair{8, NAN},
        std::pair{9, NAN}}) {
    auto bad = good;
    bad[static_cast<std::size_t>(i)] = value;
    EXPECT_FALSE(daso_schedule::decode(rule, bad).ok()) << i << " " << value;
  }
  auto beyond = good; // rounds after batches 0, 4, …, 48 and 49
  beyond[2] = 4;
  beyond[3] = beyond[4] = 1;
  beyond[1] = 13;
  EXPECT_TRUE(daso_schedule::decode(rule, beyond).ok());
  beyond[1] = 14;
  EXPECT_FALSE(daso_schedule::decode(rule, beyond).ok());
}

TEST(DasoSchedule, ShowsItsPhaseAndTheLossThatDecides) {
  daso_schedule schedule{{.epochs = 4, .batches = 2, .warmup = 1, .cooldown = 1}};
  EXPECT_EQ(schedule.phase().name, "warm-up");
  EXPECT_TRUE(std::isnan(schedule.phase().loss));
  schedule.end_round(3);
  EXPECT_EQ(schedule.phase().batches_done, 1U);
  schedule.end_round(1);
  auto cycling = schedule.phase();
  EXPECT_EQ(cycling.name, "cycling");
  EXPECT_EQ(cycling.epoch, 1U);
  EXPECT_EQ(cycling.epochs, 4U);
  EXPECT_EQ(cycling.skips, 4U);
  EXPECT_EQ(cycling.wait, 1U);
  EXPECT_EQ(cycling.loss, 2);
  EXPECT_EQ(cycling.best_loss, 2);
  schedule.end_epoch(1.5);
  schedule.end_epoch(7);
  EXPECT_EQ(schedule.phase().name, "cool-down");
  EXPECT_EQ(schedule.phase().loss, 7);
  EXPECT_EQ(schedule.phase().best_loss, 1.5);
  EXPECT_FALSE(schedule.phase().ended());
  schedule.end_epoch(1);
  EXPECT_TRUE(schedule.phase().ended());
  daso_schedule endless{{.epochs = 4, .batches = 2, .warmup = 1, .cooldown = 1, .endless = true}};
  for (int i = 0; i < 9; ++i)
    endless.end_epoch(1);
  EXPECT_FALSE(endless.phase().ended());
  EXPECT_EQ(endless.phase().name, "cool-down");
}

TEST(DasoSchedule, ALateMeanIsBlended) {
  lane_merge merge{.behind = 1};
  EXPECT_FLOAT_EQ(moved_towards(1.0F, (0.4F + 0.8F) / 2, merge.blend_share(2)), 0.8F);
  EXPECT_EQ(merge.blend_share(1), 0) << "alone";
  merge.behind = 0;
  EXPECT_EQ(merge.blend_share(2), 0) << "in time";
}

// -- the learner ---------------------------------------------------------------------------------

constexpr const char* text = "daso:epochs=12,batches=3,warmup=1,cooldown=1";

std::unique_ptr<learner> make(const char* strategy = text) {
  auto made = strategy_choice{strategy}.learners(
    []() -> result<std::unique_ptr<learner>> { return {testing::make_toy_learner({})}; })();
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

void pass(learner& model) {
  ASSERT_TRUE(model.accumulate().finite);
  model.step_locally(0.05);
}

std::vector<float> values_of(const learner& model, std::size_t which = 0) {
  std::vector<float> values(model.tensors()[which].elements());
  model.read_tensor(which, values);
  return values;
}

strategy lane_of(const learner& model, bool in_flight = false) {
  strategy_choice choice{text};
  strategy_settings how{.numbers = choice.numbers()};
  return choice->on_boundary(choice.make(how), how, {model.strategy_state(), in_flight});
}

TEST(DasoLearner, AloneIsThePlainLoopAndItsRoundsAreThoseOfTheSchedule) {
  auto vectors = vector_pool::make(4);
  auto model = make();
  auto plain = testing::make_toy_learner({});
  auto count = model->parameter_count();
  std::uint64_t passes = 0;
  std::uint64_t since = 0; // the last round began
  auto run_to = [&](std::uint64_t steps) {
    for (; since < steps; ++since, ++passes) {
      pass(*model);
      pass(*plain);
    }
  };
  std::vector<std::uint64_t> rounds;
  for (int round = 0; round < 7; ++round) {
    auto lane = lane_of(*model).averages;
    run_to(lane.due.every);
    rounds.push_back(passes);
    auto taken = model->take_mean_vector(*vectors);
    EXPECT_EQ(taken.values->size(), count + 2);
    EXPECT_GT((*taken.values)[count], 0) << "the loss";
    EXPECT_EQ(taken.values->back(), 1) << "of all samples";
    since = 0;
    run_to(lane.overlap.steps);
    auto mean = std::span<const float>{*taken.values};
    model->apply(mean.first(count), lane.merge.blend_share(1));
    model->take_metrics(mean.subspan(count), epoch_id{});
    EXPECT_EQ(values_of(dynamic_cast<learner_layer&>(*model).below()), values_of(*plain));
  }
  EXPECT_EQ(rounds, (std::vector<std::uint64_t>{1, 2, 3, 4, 6, 7, 9}));
}

TEST(DasoLearner, ALateMeanDrawsItAndAMeanInTimeReplacesIt) {
  auto vectors = vector_pool::make(4);
  auto a = make();
  auto own = [](learner& m) { return values_of(dynamic_cast<learner_layer&>(m).below()); };
  auto before = values_of(*a);
  pass(*a);
  (void)a->take_mean_vector(*vectors);
  pass(*a);
  auto theta = own(*a);
  std::vector<float> mean(before.size(), 0.25F);
  a->apply(mean, 0.5);
  for (std::size_t i = 0; i < theta.size(); ++i) {
    auto anchor = before[i] - 0.25F;
    EXPECT_EQ(values_of(*a)[i], anchor);
    EXPECT_NEAR(own(*a)[i], (theta[i] + anchor) / 2, 1e-6);
  }
  (void)a->take_mean_vector(*vectors);
  a->apply(mean, 0);
  EXPECT_EQ(own(*a), values_of(*a)) << "nothing was learned since the copy";
}

TEST(DasoLearner, ItsStateCarriesTheScheduleAndRefusesAnImpossibleOne) {
  auto a = make();
  const float losses[]{2, 1};
  for (int i = 0; i < 3; ++i)
    a->take_metrics(losses, epoch_id{});
  EXPECT_EQ(lane_of(*a).averages.due.counts, lane_clock::unit::first_peer);
  EXPECT_EQ(lane_of(*a).averages.overlap.steps, 1U);
  auto state = testing::save_state(*a);
  auto b = make();
  EXPECT_EQ(lane_of(*b).averages.due.counts, lane_clock::unit::each_member);
  ASSERT_TRUE(testing::load_state(*b, state));
  EXPECT_EQ(b->strategy_state(), a->strategy_state());
  EXPECT_EQ(testing::save_state(*b), state);
  EXPECT_EQ(b->parameters_digest(), a->parameters_digest());
  auto c = make();
  EXPECT_NE(c->parameters_digest(), a->parameters_digest()) << "peers compare the schedule, too";
  auto bad = state;
  std::size_t which = 0;
  while (a->tensors()[which].name != "schedule/daso")
    ++which;
  float impossible = 0.5F;
  std::memcpy(bad.data() + a->tensors().header_bytes() + a->tensors().offset(which) * sizeof(float),
              &impossible, sizeof impossible);
  EXPECT_FALSE(testing::load_state(*c, bad).ok());
}

} // namespace
} // namespace waggle
