#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.hpp"
#include "trainer/train_command.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

class BenchTrain : public ::testing::Test {
protected:
  BenchTrain() {
    options.arguments = {"train"};
    options.layers = 1;
    options.width = 16;
    options.heads = 2;
    options.context = 8;
    options.micro_batch = 4;
    options.target_batch_size = 10;
    options.device = "cpu";
    options.steps = 4;
    options.json_file = folder / "train.json";
  }

  testing::scratch_folder scratch_;
  const fs::path& folder = scratch_.path();
  run_options options;
};

TEST_F(BenchTrain, MeasuresWholeOptimizerStepsOfBothSides) {
  ASSERT_EQ(bench_command(train_benchmarks()).run(options), exit_clean);
  std::ifstream file{*options.json_file};
  auto report = nlohmann::json::parse(file);
  EXPECT_EQ(report["optimizer_steps"], 2); // three passes each; four passes round up to two steps
  EXPECT_EQ(report["steps"], 6);
  EXPECT_EQ(report["micro_batch"], 4);
  for (const auto& side : {report, report["plain"]}) {
    EXPECT_EQ(side["iterations"], 15);
    EXPECT_GT(side["median_seconds"].get<double>(), 0);
    EXPECT_LE(side["p25_seconds"].get<double>(), side["median_seconds"].get<double>());
    EXPECT_LE(side["median_seconds"].get<double>(), side["p75_seconds"].get<double>());
    EXPECT_GT(side["cpu_seconds"].get<double>(), 0);
  }
  // The median of the pairs' ratios, not the ratio of the medians.
  auto ratios = report["ratios"].get<std::vector<double>>();
  ASSERT_EQ(ratios.size(), 15u);
  std::nth_element(ratios.begin(), ratios.begin() + 7, ratios.end());
  EXPECT_DOUBLE_EQ(report["ratio"].get<double>(), ratios[7]);
  EXPECT_LE(report["ratio_p25"].get<double>(), ratios[7]);
  EXPECT_GE(report["ratio_p75"].get<double>(), ratios[7]);
}

TEST_F(BenchTrain, CountsASteppingPassAsAnOptimizerStepAndPausesBothSides) {
  options.strategy = "local-updates";
  options.how.epochs_per_round = 2;
  options.step_interval = milliseconds{10};
  options.min_peers = 2;
  options.wait_for_peers = milliseconds{1}; // then it begins alone
  ASSERT_EQ(bench_command(train_benchmarks()).run(options), exit_clean);
  std::ifstream file{*options.json_file};
  auto report = nlohmann::json::parse(file);
  EXPECT_EQ(report["optimizer_steps"], 4);
  EXPECT_EQ(report["steps"], 4);
  EXPECT_EQ(report["ratios"].size(), 15U);
  EXPECT_GE(report["plain"]["median_seconds"], 4 * 0.01 - 0.001);
  EXPECT_GE(report["median_seconds"], 4 * 0.01 - 0.001);
}

TEST_F(BenchTrain, APeerThatWouldNeverTrainAloneIsRefused) {
  auto refusal = [](const run_options& asked) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(bench_command(train_benchmarks()).run(asked), exit_bad_usage);
    return ::testing::internal::GetCapturedStderr();
  };
  auto two = options;
  two.min_peers = 2;
  EXPECT_NE(refusal(two).find("--min-peers 2: this measures a swarm of one peer"),
            std::string::npos);
  auto auxiliary = options;
  auxiliary.auxiliary = true;
  EXPECT_NE(refusal(auxiliary).find("--auxiliary: this measures"), std::string::npos);
}

TEST_F(BenchTrain, TheLoopAloneReportsItsSpeedAndItsMemory) {
  options.arguments = {"loop"};
  options.step_interval = milliseconds{20};
  ASSERT_EQ(bench_command(train_benchmarks()).run(options), exit_clean);
  std::ifstream file{*options.json_file};
  auto report = nlohmann::json::parse(file);
  EXPECT_EQ(report["samples"], 24); // two steps of three passes
  EXPECT_GE(report["seconds"], 6 * 0.02 - 0.001);
  EXPECT_DOUBLE_EQ(report["samples_per_second"].get<double>(),
                   24 / report["seconds"].get<double>());
  EXPECT_GT(report["peak_bytes"], 1e6);
}

TEST_F(BenchTrain, WhatCannotWorkIsRefusedBeforeAnythingStarts) {
  auto unknown = options;
  unknown.arguments = {"nothing"};
  EXPECT_EQ(bench_command(train_benchmarks()).run(unknown), exit_bad_usage);
  auto no_data = options;
  no_data.data = "/nowhere/at/all";
  EXPECT_EQ(bench_command(train_benchmarks()).run(no_data), exit_bad_usage);
  auto no_file = options;
  no_file.json_file = folder / "missing" / "train.json";
  EXPECT_EQ(bench_command(train_benchmarks()).run(no_file), exit_bad_usage);
}

} // namespace

} // namespace waggle
