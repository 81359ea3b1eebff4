// Measures the functions on which a round spends its processor time.

#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/codec/codec.hpp"
#include "runtime/core/random.hpp"
#include "runtime/wire/convert.hpp"

namespace {

using namespace waggle;

std::shared_ptr<const std::vector<float>> random_values(std::size_t n, std::uint64_t seed) {
  random_source random{seed};
  auto values = std::make_shared<std::vector<float>>(n);
  for (auto& v : *values)
    v = static_cast<float>(random.unit() - 0.5);
  return values;
}

constexpr std::uint32_t part_elements = 1U << 17U;

/// Bytes per second count the contributions as floats, for all codecs.
void reduce(benchmark::State& state, codec_id codec, const aggregation& how, std::size_t members,
            float size = 1) {
  part_reducer reducer{codec, part_elements, how};
  for (std::size_t i = 0; i < members; ++i) {
    auto values = std::make_shared<std::vector<float>>(*random_values(part_elements, i));
    for (auto& x : *values)
      x *= size;
    auto bytes = std::make_shared<std::vector<std::byte>>(encoded_size(codec, part_elements));
    encode(codec, *values, *bytes);
    if (!reducer.add(i, 1.0 + static_cast<double>(i),
                     payload_of(std::shared_ptr<const std::vector<std::byte>>{bytes})))
      state.SkipWithError("a contribution was refused");
  }
  std::vector<float> out(part_elements);
  for (auto _ : state) // NOLINT(clang-analyzer-deadcode.DeadStores)
    benchmark::DoNotOptimize(reducer.reduce(member_set::first(members), out));
  state.SetBytesProcessed(
    static_cast<std::int64_t>(state.iterations() * members * part_elements * sizeof(float)));
}

void reduce_a_part(benchmark::State& state) {
  reduce(state, codec_id::none, {}, static_cast<std::size_t>(state.range(0)));
}
BENCHMARK(reduce_a_part)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(64);

/// Uses values so large that the guards compare norms.
void reduce_large_values(benchmark::State& state) {
  reduce(state, codec_id::none, {}, static_cast<std::size_t>(state.range(0)), 1e6F);
}
BENCHMARK(reduce_large_values)->Arg(4)->Arg(8);

void reduce_encoded(benchmark::State& state) {
  auto codec = static_cast<codec_id>(state.range(0));
  state.SetLabel(std::string{to_string(codec)});
  reduce(state, codec, {}, 4);
}
BENCHMARK(reduce_encoded)->DenseRange(0, 6);

void reduce_robustly(benchmark::State& state) {
  aggregation how{static_cast<aggregator>(state.range(0)), 3};
  state.SetLabel(std::string{to_string(how.how)});
  reduce(state, codec_id::none, how, static_cast<std::size_t>(state.range(1)));
}
BENCHMARK(reduce_robustly)->ArgsProduct({{1, 2, 3, 4}, {10, 32}});

void look_for_nan(benchmark::State& state) {
  auto values = random_values(1U << 20U, 1);
  for (auto _ : state) // NOLINT(clang-analyzer-deadcode.DeadStores)
    benchmark::DoNotOptimize(all_finite(*values));
  state.SetBytesProcessed(
    static_cast<std::int64_t>(state.iterations() * values->size() * sizeof(float)));
}
BENCHMARK(look_for_nan);

void part_header_there_and_back(benchmark::State& state) {
  wire::part part;
  part.count = 1U << 17U;
  part.weight = 1;
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    auto header = wire::encode(wire::message{wire::event{part}});
    benchmark::DoNotOptimize(wire::decode(header, 4U << 17U));
  }
}
BENCHMARK(part_header_there_and_back);

} // namespace
