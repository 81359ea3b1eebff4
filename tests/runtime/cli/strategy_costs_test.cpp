#include "runtime/cli/strategy_costs.hpp"

#include <algorithm>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/config/options.hpp"
#include "runtime/training/plan.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {
namespace {

/// The row with this strategy and codec.
strategy_cost row_of(const planned_run& run, const std::string& options) {
  auto rows = strategy_costs(run);
  auto found =
    std::ranges::find_if(rows, [&](const strategy_cost& row) { return row.options() == options; });
  EXPECT_NE(found, rows.end()) << options;
  return found == rows.end() ? strategy_cost{} : *found;
}

// Two peers with an mlp of 0.79 M values, 50 Mbit/s and 20 ms: shares in tests/bench/RESULTS.md.
TEST(StrategyCosts, AreThoseThatWereMeasured) {
  planned_run run{.peers = 2, .link = {50e6, 0.02}, .values = 790'000, .step_seconds = 0.029};
  EXPECT_NEAR(row_of(run, "--strategy diloco:steps=100,outer-momentum=0.5").share, 0.85, 0.05);
  EXPECT_NEAR(row_of(run, "--strategy diloco:steps=100,outer-momentum=0.5,overlap=50").share, 0.998,
              0.05);
  EXPECT_NEAR(row_of(run, "--strategy data-parallel").share, 0.047, 0.05);
}

/// The share of the time that a peer of two computes, by what `plan_next` decides.
double simulated_share(const strategy_cost& row, double pass_seconds) {
  auto lane = strategy_choice{row.strategy}.make({}).averages;
  situation now{.in_group = true, .members = 2};
  std::uint64_t counted = 0; // passes since the last boundary
  double time = 0;
  double ends = 0; // the round that runs
  double computed = 0;
  double from = 0; // of the time measured: the first round ends apart
  while (now.epochs_done < 12) {
    if (now.round && !now.round->over && time >= ends) {
      now.round->over = true;
      ++now.epochs_done;
    }
    bool runs = now.round && !now.round->over;
    now.boundary_steps = runs ? 0 : counted;
    now.own_samples = counted;
    auto next = plan_next(lane, now);
    if (next.merge)
      now.round.reset();
    if (next.begin) {
      if (now.epochs_done == 1) {
        from = time;
        computed = 0;
      } else if (now.epochs_done == 11) {
        break;
      }
      now.last_epoch = now.epochs_done;
      now.round = flying_round{now.own_steps, false};
      ends = time + row.round_seconds;
      counted = 0;
    }
    if (next.pass) {
      time += pass_seconds;
      computed += pass_seconds;
      ++counted;
      ++now.own_steps;
    } else if (!next.merge && !next.begin) {
      time = std::max(time, ends);
    }
  }
  return computed / (time - from);
}

TEST(StrategyCosts, TheShareIsThatOfAPeerThatWaitsWherePassesEndBeforeTheRound) {
  // Rounds shorter than a pass, hidden, longer than the overlap, and longer than all passes.
  for (double megabits : {10'000., 50., 20., 10., 5., 1.}) {
    planned_run run{
      .peers = 2, .link = {1e6 * megabits, 0}, .values = 790'000, .step_seconds = 0.029};
    for (const auto& row : strategy_costs(run))
      EXPECT_NEAR(row.share, simulated_share(row, run.step_seconds), 0.03)
        << row.options() << " at " << megabits << " Mbit/s, " << row.round_seconds << " s";
  }
}

TEST(StrategyCosts, ASparseRoundSendsContributionsBack) {
  auto fewer = [](codec_id codec, std::uint64_t peers) {
    return bytes_sent(codec_id::none, 1'000'000, peers) / bytes_sent(codec, 1'000'000, peers);
  };
  EXPECT_NEAR(fewer(codec_id::sparse2, 2), 91, 0.5);
  EXPECT_NEAR(fewer(codec_id::sparse2, 4), 55, 0.5);
  EXPECT_NEAR(fewer(codec_id::sparse2, 8), 30, 0.5);
  EXPECT_NEAR(fewer(codec_id::sparse2, 16), 16, 0.5);
  for (std::uint64_t peers : {2U, 16U, 64U})
    EXPECT_NEAR(fewer(codec_id::e3m0, peers), 7.76, 0.01);
  EXPECT_EQ(bytes_sent(codec_id::none, 1'000'000, 1), 0);
}

TEST(StrategyCosts, PeersTalkBesideTheirRounds) {
  // At the interface of a peer, as measured (tests/bench/RESULTS.md).
  for (auto [peers, bytes] : {std::pair{2U, 44.8e3}, std::pair{4U, 104e3}}) {
    planned_run run{.peers = peers, .link = {50e6, 0}, .values = 790'272, .step_seconds = 0.023};
    auto row =
      row_of(run, "--strategy diloco:steps=100,outer-rate=1,outer-momentum=0 --codec sparse2");
    EXPECT_NEAR(row.bytes, bytes, 0.08 * bytes) << peers << " peers";
  }
}

TEST(StrategyCosts, AFastLinkNeedsNoFewerBytesAndASlowOneDoes) {
  planned_run run{.peers = 4, .link = {10e9, 0.001}, .values = 1'000'000, .step_seconds = 0.4};
  auto best = [&run] {
    auto rows = strategy_costs(run);
    return best_of(rows, run)->options();
  };
  EXPECT_EQ(best(), "--strategy data-parallel");
  run.link = {50e6, 0.02};
  run.values = 1'000'000'000;
  EXPECT_EQ(best(), "--strategy diloco:steps=100,outer-rate=1,outer-momentum=0,overlap=50 "
                    "--codec sparse2");
  run.values = 20'000'000; // adapters
  EXPECT_THAT(best(), ::testing::HasSubstr("diloco:steps=25"));
  run.peers = 1;
  EXPECT_EQ(best(), "--strategy data-parallel") << "nothing is sent";
}

TEST(StrategyCosts, ARowThatDoesNotFitIsNotTheBest) {
  planned_run run{.peers = 4, .link = {50e6, 0.02}, .values = 1'000'000'000, .step_seconds = 10};
  auto rows = strategy_costs(run);
  run.memory = 30'000'000'000; // seven vectors and a half
  const auto* best = best_of(rows, run);
  ASSERT_NE(best, nullptr);
  EXPECT_LE(best->memory, 30e9);
  run.memory = 1'000'000'000;
  EXPECT_EQ(best_of(rows, run), nullptr);
  auto without = row_of(run, "--strategy data-parallel").memory;
  run.frozen = 7'000'000'000;
  EXPECT_EQ(row_of(run, "--strategy data-parallel").memory - without, 28e9);
}

TEST(StrategyCosts, TakeFromARunWhatItsPeersSayAndLeaveTheRest) {
  auto read = [](const char* text) { return nlohmann::ordered_json::parse(text); };
  planned_run before{.peers = 8, .link = {50e6, 0.02}, .values = 5, .step_seconds = 0.4};
  auto seen = seen_in(
    {read(R"({"peers": 3, "bandwidth": 9e6})"), read(R"({"peers": 2, "bandwidth": 2.5e6})"),
     read("null")},
    read(
      R"({"peers": [{"pass_seconds": 0.1}, {"pass_seconds": 0.3, "rtt_ms": 60}, {"rtt_ms": 8}]})"),
    before);
  EXPECT_EQ(seen.peers, 3U);
  EXPECT_EQ(seen.link, (link_speed{20e6, 0.03}));
  EXPECT_EQ(seen.step_seconds, 0.3);
  EXPECT_EQ(seen.values, 5U);
  for (const auto* nothing : {"null", "[]", R"({"peers": null, "bandwidth": null})",
                              R"({"peers": [null, 7, {"pass_seconds": "1"}], "bandwidth": -1})"}) {
    auto same = seen_in({read(nothing)}, read(nothing), before);
    EXPECT_EQ(same.peers, 8U) << nothing;
    EXPECT_EQ(same.link, before.link) << nothing;
    EXPECT_EQ(same.step_seconds, 0.4) << nothing;
  }
}

// The command that is printed starts a run.
TEST(StrategyCosts, EveryRowIsOneOfTrainingsOptions) {
  for (const auto& row : strategy_costs({.link = {}, .values = 1'000})) {
    ASSERT_TRUE(strategy_choice::parse(row.strategy)) << row.strategy;
    auto options = resolve({}, {},
                           {{"strategy", {row.strategy, "--strategy"}},
                            {"codec", {std::string{to_string(row.codec)}, "--codec"}}});
    auto usable = check_training_options(*options);
    EXPECT_TRUE(usable) << usable.error().detail;
  }
}

} // namespace
} // namespace waggle
