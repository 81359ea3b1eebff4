// An outer step of diloco beside a copy of a vector of its length.

#include <algorithm>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/training/strategies/anchored_learner.hpp"
#include "tests/support/toy_learner.hpp"

namespace {

using namespace waggle;

constexpr std::size_t values = 16U << 20U;

void copy_a_vector(benchmark::State& state) {
  std::vector<float> from(values, 1), to(values);
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    std::copy(from.begin(), from.end(), to.begin());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(copy_a_vector)->Unit(benchmark::kMillisecond);

/// Between two passes of a peer alone; θ moves with the anchor.
void outer_step(benchmark::State& state) {
  auto make = []() -> result<std::unique_ptr<learner>> {
    return testing::make_toy_learner({.parameters = values, .micro_batch = 1});
  };
  auto made = anchored(make, "diloco", outer_rule{})();
  if (!made)
    return state.SkipWithError("no learner");
  auto& model = **made;
  auto vectors = vector_pool::make(2);
  for (auto _ : state) { // NOLINT(clang-analyzer-deadcode.DeadStores)
    state.PauseTiming();
    (void)model.accumulate();
    model.step_locally(0.001);
    auto taken = model.take_mean_vector(*vectors, 0);
    float_vector mean(taken.values->begin(), taken.values->begin() + values);
    state.ResumeTiming();
    model.apply(mean, 0);
  }
}
BENCHMARK(outer_step)->Unit(benchmark::kMillisecond)->Iterations(8);

} // namespace
