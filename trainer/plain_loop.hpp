#pragma once

#include <cstdint>

#include "runtime/cli/bench.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// Measurements of the plain loop, without its first optimizer step (the warm-up).
struct loop_report {
  std::uint64_t optimizer_steps = 0;
  std::uint64_t micro_steps = 0;
  bench_timing timing;
  double last_loss = 0; // of the last micro-step, in nats
};

/// A training loop that uses LibTorch only: the same model, data and samples as a learner with this
/// configuration, gradients accumulated over `target_batch` samples, and torch::optim. It is the
/// baseline for the speed of a peer. `steps`: optimizer steps after the warm-up. Sets the number of
/// compute threads. `step_interval`: a pause after each pass. Fails with
/// ec::bad_config like make_torch_learner.
result<loop_report> run_plain_loop(const learner_config& config, std::uint64_t target_batch,
                                   double lr, std::uint64_t steps,
                                   milliseconds step_interval = milliseconds{0});

/// Number of micro-steps that reach the target batch, i.e. of one optimizer step.
constexpr std::uint64_t micro_steps_of(std::uint64_t target_batch, std::int64_t micro_batch) {
  auto micro = static_cast<std::uint64_t>(micro_batch);
  return (target_batch + micro - 1) / micro;
}

} // namespace waggle
