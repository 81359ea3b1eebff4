#include "runtime/cli/bench.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/cli/bench_codec.hpp"
#include "runtime/codec/codec.hpp"

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
  auto output = bench_output::open(options);
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.error().code, ec::bad_config);
  options.arguments = {"codec"};
  EXPECT_EQ(codec_benchmark().run(options), exit_bad_usage);
}

TEST(BenchCodec, EveryCodecIsMeasured) {
  codec_bench_config config;
  config.elements = 200'001;
  config.iterations = 2;
  config.part_bytes = 50'000;
  auto report = measure_codecs(config);
  ASSERT_EQ(report.size(), all_codecs().size());
  for (std::size_t i = 0; i < report.size(); ++i) {
    const auto& row = report[i];
    auto codec = all_codecs()[i];
    SCOPED_TRACE(to_string(codec));
    EXPECT_EQ(row["codec"], to_string(codec));
    EXPECT_EQ(row["elements"], 200'001);
    EXPECT_EQ(row["seed"], 7348);
    EXPECT_EQ(row["iterations"], 2);
    auto exact = static_cast<double>(bytes_per_value(codec)) / 4;
    EXPECT_GE(row["ratio"].get<double>(), exact);
    EXPECT_LT(row["ratio"].get<double>(), exact + 0.01) << "headers and codebooks";
    EXPECT_GT(row["encode_mb_per_s"].get<double>(), 0);
    EXPECT_GT(row["decode_mb_per_s"].get<double>(), 0);
    EXPECT_GT(row["median_seconds"].get<double>(), 0);
    EXPECT_LE(row["p25_seconds"].get<double>(), row["p75_seconds"].get<double>());
    auto error = row["mean_square_error"].get<double>();
    EXPECT_EQ(error == 0, codec == codec_id::none);
    EXPECT_LT(error, 8e-4);
    EXPECT_GE(row["largest_error"].get<double>() * row["largest_error"].get<double>(), error);
  }
}

} // namespace
} // namespace waggle
