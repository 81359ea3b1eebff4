#include "runtime/cli/bench.hpp"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace waggle {
namespace {

namespace fs = std::filesystem;

TEST(Bench, OnlyBenchmarksThatExistAreRun) {
  int ran = 0;
  auto command = bench_command({{"one", "", "", [&](const run_options&) { return ++ran, 7; }},
                                {"two", "", "", [](const run_options&) { return 8; }}});
  run_options options;
  options.arguments = {"one"};
  EXPECT_EQ(command.run(options), 7);
  options.arguments = {"two"};
  EXPECT_EQ(command.run(options), 8);
  options.arguments = {"three"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(command.run(options), exit_bad_usage);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("one, two"), std::string::npos);
  EXPECT_EQ(ran, 1);
}

TEST(Bench, QuantilesAreInterpolated) {
  EXPECT_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(quantile({4, 1, 2, 3}, 0.5), 2.5);
  EXPECT_EQ(quantile({5}, 0.25), 5);
  auto summary = summary_of({{1, 10}, {2, 20}, {3, 30}});
  EXPECT_EQ(summary["median_seconds"], 2.0);
  EXPECT_EQ(summary["p25_seconds"], 1.5);
  EXPECT_EQ(summary["p75_seconds"], 2.5);
  EXPECT_EQ(summary["iterations"], 3);
  EXPECT_EQ(summary["cpu_seconds"], 20.0);
}

TEST(Bench, AFileThatCannotBeWrittenIsRefusedBeforeAnythingIsMeasured) {
  run_options options;
  options.json_file = "/nowhere/at/all.json";
  EXPECT_EQ(bench_output::open(options).error().code, ec::bad_config);
}

} // namespace
} // namespace waggle
