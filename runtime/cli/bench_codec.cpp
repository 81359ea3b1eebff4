// Measures the speed and the error of each codec.

#include "runtime/cli/bench_codec.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include <nlohmann/json.hpp>

#include "runtime/codec/codec.hpp"
#include "runtime/core/check.hpp"
#include "runtime/core/random.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

/// Samples of N(0, 1), by the Box-Muller transform.
std::vector<float> normal_values(std::size_t n, std::uint64_t seed) {
  random_source random{seed};
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; i += 2) {
    auto radius = std::sqrt(-2 * std::log(1 - random.unit()));
    auto angle = 2 * std::numbers::pi * random.unit();
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < n)
      values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

struct stretch {
  std::size_t offset; // in values
  std::size_t count;
  std::size_t at; // in bytes
  std::size_t size;
};

std::vector<stretch> cut(codec_id codec, const codec_bench_config& config) {
  auto per_part = std::max<std::size_t>(values_per_part(codec, config.part_bytes), 1);
  std::vector<stretch> parts;
  std::size_t at = 0;
  for (std::size_t offset = 0; offset < config.elements; offset += per_part) {
    auto count = std::min(per_part, config.elements - offset);
    auto size = encoded_size(codec, count);
    parts.push_back({offset, count, at, size});
    at += size;
  }
  return parts;
}

json measure(codec_id codec, const std::vector<float>& values, const codec_bench_config& config) {
  auto parts = cut(codec, config);
  std::vector<std::byte> bytes(parts.back().at + parts.back().size);
  std::vector<float> back(values.size());
  std::vector<bench_timing> both;
  std::vector<double> encoding;
  std::vector<double> decoding;
  for (int i = 0; i <= config.iterations; ++i) { // the first one only warms up
    bench_stopwatch watch;
    for (const auto& part : parts)
      encode(codec, std::span{values}.subspan(part.offset, part.count),
             std::span{bytes}.subspan(part.at, part.size));
    auto encoded = watch.elapsed();
    for (const auto& part : parts) {
      auto decoded = decode(codec, byte_span{bytes}.subspan(part.at, part.size),
                            std::span{back}.subspan(part.offset, part.count));
      WAGGLE_CHECK(decoded.ok(), "a part that was just encoded does not decode");
    }
    auto all = watch.elapsed();
    if (i == 0)
      continue;
    both.push_back(all);
    encoding.push_back(encoded.seconds);
    decoding.push_back(all.seconds - encoded.seconds);
  }
  double squares = 0;
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto error = std::fabs(static_cast<double>(back[i]) - static_cast<double>(values[i]));
    squares += error * error;
    largest = std::max(largest, error);
  }
  auto plain = 4 * static_cast<double>(values.size());
  json report{{"name", "codec"}, {"codec", to_string(codec)}};
  report.update(summary_of(both));
  report["bytes"] = bytes.size();
  report["ratio"] = static_cast<double>(bytes.size()) / plain;
  report["encode_mb_per_s"] = plain * 1e-6 / quantile(encoding, 0.5);
  report["decode_mb_per_s"] = plain * 1e-6 / quantile(decoding, 0.5);
  report["mean_square_error"] = squares / static_cast<double>(values.size());
  report["largest_error"] = largest;
  report["elements"] = config.elements;
  report["seed"] = config.seed;
  report["part_bytes"] = config.part_bytes;
  return report;
}

int bench_codec(const run_options& options) {
  auto output = bench_output::open(options);
  if (!output)
    return bad_usage(output.error().detail);
  codec_bench_config config;
  auto report = measure_codecs(config);
  std::printf("%zu values of N(0, 1), seed %llu, parts of %zu bytes, median of %d\n",
              config.elements, static_cast<unsigned long long>(config.seed), config.part_bytes,
              config.iterations);
  std::printf("%-15s %7s %14s %14s %12s %12s\n", "codec", "ratio", "encode MB/s", "decode MB/s",
              "mean sq. err", "largest err");
  for (const auto& row : report)
    std::printf("%-15s %7.4f %14.0f %14.0f %12.3g %12.3g\n",
                row["codec"].get<std::string>().c_str(), row["ratio"].get<double>(),
                row["encode_mb_per_s"].get<double>(), row["decode_mb_per_s"].get<double>(),
                row["mean_square_error"].get<double>(), row["largest_error"].get<double>());
  return (*output)->write(report);
}

} // namespace

json measure_codecs(const codec_bench_config& config) {
  WAGGLE_CHECK(config.elements > 0 && config.iterations > 0, std::to_string(config.elements));
  auto values = normal_values(config.elements, config.seed);
  auto report = json::array();
  for (auto codec : all_codecs())
    report.push_back(measure(codec, values, config));
  return report;
}

bench_entry codec_benchmark() {
  return {"codec", "bytes, speed and error of each codec on ten million normal values",
          "waggle bench codec --json codec.json", bench_codec};
}

} // namespace waggle
