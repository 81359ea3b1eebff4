#include "runtime/cli/strategy_comparison.hpp"

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/config/options.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {
namespace {

using ::testing::HasSubstr;

run_options two_peers() {
  run_options o;
  o.peers = 2;
  o.micro_batch = 8;
  o.target_batch_size = 70; // four passes of each peer, and a rest
  o.steps = 41;             // ten epochs, and a rest
  return o;
}

TEST(StrategyComparison, HasARowForEachStrategyAndItsVariantsAndEachIsAccepted) {
  auto rows = strategy_cases(two_peers());
  ASSERT_TRUE(rows.ok());
  std::set<std::string> strategies;
  for (const auto& row : *rows) {
    settings flags;
    for (std::size_t i = 0; i + 1 < row.arguments.size(); i += 2)
      flags[row.arguments[i].substr(2)] = {row.arguments[i + 1], row.arguments[i]};
    auto options = resolve({}, {}, flags);
    ASSERT_TRUE(options.ok()) << row.name << ": " << options.error().detail;
    EXPECT_EQ(options->epochs, row.epochs) << row.name;
    bool skips = row.name.starts_with("daso"); // two epochs with a round after each of four
                                               // batches, and eight with two rounds
    EXPECT_EQ(row.epochs, row.name.starts_with("data-parallel") ? 40U
                          : skips                               ? 24U
                                                                : 10U)
      << row.name;
    strategies.insert(options->strategy);
    const auto* chosen = find_strategy(options->strategy);
    EXPECT_EQ(row.steps_each_pass, chosen->steps_each_pass() || chosen->counts_steps) << row.name;
    if (skips) {
      EXPECT_EQ(options->strategy, "daso:epochs=10,batches=4,warmup=1,cooldown=1");
    } else if (!chosen->numbers.empty() && chosen->steps_each_pass()) {
      EXPECT_EQ(options->strategy, std::string{chosen->name} + ":steps=4");
    } else if (!chosen->counts_steps) {
      EXPECT_EQ(options->target_batch_size, 64U);
    } else if (chosen->averages_parameters) {
      EXPECT_EQ(options->averaging_steps_period, 4U);
    }
    auto delayed =
      chosen->averages_parameters ? options->delay_state_averaging : options->delay_grad_averaging;
    EXPECT_EQ(row.merged != lane_overlap::until::own_steps, delayed) << row.name;
  }
  EXPECT_EQ(strategies.size(), strategy_table().size());
  EXPECT_EQ(rows->size(), 18U);
}

TEST(StrategyComparison, RefusesEpochsThatAreTooShortOrTooFew) {
  auto small = two_peers();
  small.target_batch_size = 15;
  auto refused = strategy_cases(small);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().detail, HasSubstr("raise it to 16"));
  auto few = two_peers();
  few.steps = 11;
  refused = strategy_cases(few);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().detail, HasSubstr("raise it to 12"));
  few.steps = 12;
  EXPECT_TRUE(strategy_cases(few).ok());
}

TEST(StrategyComparison, ReadsWhatAPeerExports) {
  auto r = reading_of(R"(# HELP waggle_training_epoch This peer's epoch.
waggle_training_epoch{run="r"} 7
waggle_training_epoch_seconds{run="r"} 100
waggle_training_samples_total{run="r",outcome="used"} 448
waggle_training_samples_total{run="r",outcome="dropped"} 8
waggle_training_step_duration_seconds_count{run="r",phase="forward_backward"} 56
waggle_training_step_duration_seconds_sum{run="r",phase="forward_backward"} 1.5
waggle_training_step_duration_seconds_bucket{run="r",phase="forward_backward",le="0.1"} 56
waggle_training_step_duration_seconds_count{run="r",phase="optimizer"} 7
waggle_training_step_duration_seconds_sum{run="r",phase="optimizer"} 0.25
waggle_averaging_round_duration_seconds_count{run="r",kind="gradients"} 7
waggle_averaging_round_duration_seconds_sum{run="r",kind="gradients"} 0.7
waggle_averaging_round_duration_seconds_sum{run="r",kind="vector"} 0
waggle_network_bytes_total{run="r",direction="out",plane="control"} 100
waggle_network_bytes_total{run="r",direction="out",plane="data"} 900
waggle_network_bytes_total{run="r",direction="in",plane="data"} 5000)",
                      12.5);
  EXPECT_EQ(r.at, 12.5);
  EXPECT_EQ(r.epoch, 7);
  EXPECT_EQ(r.samples, 448);
  EXPECT_EQ(r.passes, 56);
  EXPECT_EQ(r.computing_seconds, 1.75);
  EXPECT_EQ(r.rounds, 7);
  EXPECT_EQ(r.round_seconds, 0.7);
  EXPECT_EQ(r.bytes_sent, 1000);
  EXPECT_EQ(reading_of("", 1).samples, 0);
}

/// Ten epochs in five seconds, of which the peer computes 3; `more` samples than the other.
peer_run ran(double more) {
  peer_run p;
  p.first = {1, 2, 128, 16, 0.5, 2, 0.2, 1000};
  p.last = {6, 12, 128 + 640 + more, 96, 3.5, 12, 1.2, 11'000};
  p.samples = p.last.samples + 64;
  p.peak_bytes = 150e6;
  return p;
}

TEST(StrategyComparison, ComparesPeersWithThePlainLoop) {
  strategy_case row{"collaborative", {}, false, lane_overlap::until::own_steps, 12};
  loop_reading loop{200, 100e6};
  auto r = result_of(row, {ran(0), ran(160)}, loop, 0);
  EXPECT_EQ(r.name, "collaborative");
  EXPECT_DOUBLE_EQ(r.samples_per_second, (640 + 800) / 5.0 / 2);
  EXPECT_DOUBLE_EQ(r.share, 144.0 / 200);
  EXPECT_DOUBLE_EQ(r.stall_seconds, 0.2);
  EXPECT_DOUBLE_EQ(r.extra_bytes, 50e6);
  EXPECT_DOUBLE_EQ(r.sent_per_thousand, 20'000.0 / 1440 * 1000);
  EXPECT_DOUBLE_EQ(r.samples, 768 + 928 + 128);
  EXPECT_EQ(r.staleness, 0);
  EXPECT_TRUE(std::isnan(r.loss));
}

TEST(StrategyComparison, StalenessIsAnEpochOrTheShareOfARoundInOne) {
  loop_reading loop{200, 100e6};
  strategy_case delayed{"d", {}, false, lane_overlap::until::next_boundary, 12};
  EXPECT_EQ(result_of(delayed, {ran(0)}, loop, 0).staleness, 1);
  strategy_case local{"l", {}, true, lane_overlap::until::it_arrives, 12};
  EXPECT_DOUBLE_EQ(result_of(local, {ran(0)}, loop, 0).staleness, 0.1 / 0.5);
}

TEST(StrategyComparison, APauseBetweenPassesThatWasAskedForIsNoStall) {
  strategy_case row{"collaborative", {}, false, lane_overlap::until::own_steps, 12};
  // Of five seconds it computes 3, and pauses 80 times.
  EXPECT_DOUBLE_EQ(result_of(row, {ran(0)}, {200, 0}, 0.01).stall_seconds, (5 - 3 - 0.8) / 10);
  EXPECT_DOUBLE_EQ(result_of(row, {ran(0)}, {200, 0}, 0.05).stall_seconds, 0);
}

TEST(StrategyComparison, PrintsAndWritesEachRow) {
  strategy_case row{"collaborative", {}, false, lane_overlap::until::own_steps, 12};
  auto r = result_of(row, {ran(0)}, {200, 100e6}, 0);
  auto lines = comparison_table({r});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr("stall s/epoch"));
  EXPECT_THAT(lines[1], HasSubstr("collaborative        128   0.64"));
  EXPECT_THAT(lines[1], HasSubstr("-")) << "the loss is not known";
  EXPECT_EQ(to_json(r)["share"], 0.64);
  EXPECT_EQ(to_json(r)["loss"].dump(), "null");
  r.loss = 2.5;
  EXPECT_EQ(to_json(r)["loss"], 2.5);
}

} // namespace
} // namespace waggle
