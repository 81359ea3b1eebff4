// Encodes and decodes with every codec, with and without AVX2, on a part of 2^18 values (1 MiB of
// floats) similar to N(0, 1). Throughput counts the bytes of the floats, not the encoded bytes.
// Encoding also reports the bytes relative to the floats', and the errors.

#include <algorithm>
#include <cmath>

#include <benchmark/benchmark.h>

#include "runtime/codec/error_feedback.hpp"
#include "runtime/codec/part_reader.hpp"
#include "runtime/core/random.hpp"
#include "tests/support/all_codecs.hpp"

namespace {

using namespace waggle;

constexpr std::size_t elements = 1U << 18U;

std::vector<float> bells(std::uint64_t seed) {
  random_source random{seed};
  std::vector<float> values(elements);
  for (auto& x : values) {
    double sum = -6;
    for (int i = 0; i < 12; ++i)
      sum += random.unit();
    x = static_cast<float>(sum);
  }
  return values;
}

struct setting {
  codec_id codec;
  instructions path;
};

setting setting_of(benchmark::State& state) {
  setting out{static_cast<codec_id>(state.range(0)),
              state.range(1) == 0 ? instructions::portable : instructions::avx2};
  state.SetLabel(std::string{to_string(out.codec)}
                 + (out.path == instructions::avx2 ? ", AVX2" : ", portable"));
  if (out.path == instructions::avx2 && best_instructions() != instructions::avx2)
    state.SkipWithError("this processor has no AVX2");
  return out;
}

void count(benchmark::State& state) {
  state.SetBytesProcessed(
    static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * elements * 4));
}

void all_settings(benchmark::internal::Benchmark* b) {
  for (auto codec : all_codecs())
    for (int path : {0, 1})
      b->Args({static_cast<int>(codec), path});
}

void encode_a_part(benchmark::State& state) {
  auto [codec, path] = setting_of(state);
  auto values = bells(1);
  std::vector<std::byte> bytes(encoded_size(codec, elements));
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    encode(codec, values, bytes, path);
    benchmark::ClobberMemory();
  }
  count(state);
  std::vector<float> back(elements);
  part_reader::open(codec, bytes, elements, path)->read(0, back);
  double squares = 0;
  double largest = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    auto error = std::fabs(static_cast<double>(back[i]) - static_cast<double>(values[i]));
    squares += error * error;
    largest = std::max(largest, error);
  }
  state.counters["ratio"] = static_cast<double>(bytes.size()) / (4.0 * elements);
  state.counters["mean_square_error"] = squares / elements;
  state.counters["largest_error"] = largest;
}
BENCHMARK(encode_a_part)->Apply(all_settings);

/// Decodes in blocks, like a reducer.
void decode_a_part(benchmark::State& state) {
  auto [codec, path] = setting_of(state);
  auto values = bells(1);
  std::vector<std::byte> bytes(encoded_size(codec, elements));
  encode(codec, values, bytes);
  std::vector<float> block(1'024);
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    auto reader = part_reader::open(codec, bytes, elements, path);
    for (std::size_t at = 0; at < elements; at += block.size()) {
      reader->read(at, block);
      benchmark::DoNotOptimize(block.data());
      benchmark::ClobberMemory();
    }
  }
  count(state);
}
BENCHMARK(decode_a_part)->Apply(all_settings);

void feed_errors_back(benchmark::State& state) {
  auto codec = static_cast<codec_id>(state.range(0));
  state.SetLabel(std::string{to_string(codec)});
  auto values = bells(1);
  std::vector<float> sent(elements);
  std::vector<coded_part> parts{{0, elements, codec}};
  error_feedback feedback;
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    feedback.begin(values, sent);
    feedback.commit(sent, parts);
  }
  count(state);
}
BENCHMARK(feed_errors_back)->DenseRange(1, 6)->Arg(9)->Arg(10);

} // namespace
