// Measures the functions on which a round spends its processor time.

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/averaging/part_reducer.hpp"
#include "runtime/averaging/result_digest.hpp"
#include "runtime/averaging/round_proof.hpp"
#include "runtime/codec/codec.hpp"
#include "runtime/core/random.hpp"
#include "runtime/crypto/identity.hpp"
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

/// What each member does with a result that is the contributions themselves.
BENCHMARK_CAPTURE(reduce, sixteen_relayed, codec_id::sparse2, {}, 16);

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
  wire::part part{.count = 1U << 17U, .weight = 1};
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    auto header = wire::encode(wire::message{wire::event{part}});
    benchmark::DoNotOptimize(wire::decode(header, 4U << 17U));
  }
}
BENCHMARK(part_header_there_and_back);

/// A result of so many bytes, cut as a round of four members cuts it.
struct result_of_four {
  explicit result_of_four(std::uint64_t bytes) {
    plan.elements = bytes / sizeof(float);
    plan.part_elements = part_elements;
    plan.members.resize(4);
    plan.shares.assign(4, plan.elements / 4);
    plan.codecs = {{plan.elements, codec_id::none}};
    values = random_values(plan.elements, 1);
  }
  part_values parts(const part_table& table) const {
    return [this, &table](std::uint32_t part) {
      return std::span{*values}.subspan(table[part].offset, table[part].count);
    };
  }

  round_plan plan;
  std::shared_ptr<const std::vector<float>> values;
};

/// What each member computes of the whole result: up to 1 MiB without a key.
void digest_of_a_result(benchmark::State& state, bool keyed) {
  result_of_four result{static_cast<std::uint64_t>(state.range(0))};
  part_table table{result.plan};
  part_groups groups{table};
  result_terms terms{{}, 15, 4};
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    if (keyed) {
      benchmark::DoNotOptimize(keyed_result_digest(terms, {}, groups, result.parts(table)));
      continue;
    }
    std::vector<digest> all;
    for (std::size_t group = 0; group < groups.size(); ++group)
      all.push_back(group_digest(terms, groups[group], result.parts(table)));
    benchmark::DoNotOptimize(result_digest(terms, all));
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK_CAPTURE(digest_of_a_result, sha256, false)->Arg(64 << 10)->Arg(1 << 20);
BENCHMARK_CAPTURE(digest_of_a_result, poly1305, true)->Arg(64 << 20);

void sign_what_is_prepared(benchmark::State& state) {
  auto self = identity::from_seed(1);
  for (auto _ : state) // NOLINT(clang-analyzer-deadcode.DeadStores)
    benchmark::DoNotOptimize(self->sign(prepared_statement({}, {})));
}
BENCHMARK(sign_what_is_prepared);

void verify_what_was_prepared(benchmark::State& state) {
  auto self = identity::from_seed(1);
  std::vector<std::pair<std::string, signature>> prepared; // more than the verifier remembers
  for (std::uint32_t view = 0; view < 64; ++view) {
    auto statement = prepared_statement({}, {view});
    prepared.emplace_back(statement, self->sign(statement));
  }
  auto verifier = make_caching_verifier(1);
  std::size_t next = 0;
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    const auto& [statement, by] = prepared[next++ % prepared.size()];
    benchmark::DoNotOptimize(verifier->verify(self->key(), as_byte_span(statement), by));
  }
}
BENCHMARK(verify_what_was_prepared);

void lock_without_rivals(benchmark::State& state) {
  std::mutex mutex;
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    std::lock_guard guard{mutex};
    benchmark::ClobberMemory();
  }
}
BENCHMARK(lock_without_rivals);

} // namespace
