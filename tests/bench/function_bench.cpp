// What a round spends its processor time on, function by function.

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

void reduce_a_part(benchmark::State& state) {
  constexpr std::uint32_t elements = 1U << 17U;
  auto members = static_cast<std::size_t>(state.range(0));
  part_reducer reducer{codec_id::none, elements};
  for (std::size_t i = 0; i < members; ++i)
    if (!reducer.add(i, 1.0 + static_cast<double>(i), payload_of(random_values(elements, i))))
      state.SkipWithError("a contribution was refused");
  std::vector<float> out(elements);
  for (auto _ : state) // NOLINT(clang-analyzer-deadcode.DeadStores)
    benchmark::DoNotOptimize(reducer.reduce(member_set::first(members), out));
  state.SetBytesProcessed(
    static_cast<std::int64_t>(state.iterations() * members * elements * sizeof(float)));
}
BENCHMARK(reduce_a_part)->Arg(2)->Arg(4)->Arg(8)->Arg(16);

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
