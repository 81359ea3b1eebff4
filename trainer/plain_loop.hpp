#pragma once

#include <cstdint>

#include "runtime/core/result.hpp"
#include "trainer/torch_learner.hpp"

namespace waggle {

/// What the plain loop took, without its first optimizer step (the warm-up).
struct loop_report {
  std::uint64_t optimizer_steps = 0;
  std::uint64_t micro_steps = 0;
  double seconds = 0;
  double cpu_seconds = 0; // of all the process's threads
  double last_loss = 0;   // of the last micro-step, in nats
};

/// Training as one writes it with LibTorch alone: the same model, data and samples as a learner of
/// this configuration has, gradients accumulated over `target_batch` samples, torch::optim. This is
/// what a peer's speed is measured against. `steps`: optimizer steps after the warm-up. Sets the
/// number of compute threads. Fails with ec::bad_config as make_torch_learner does.
result<loop_report> run_plain_loop(const learner_config& config, std::uint64_t target_batch,
                                   double lr, std::uint64_t steps);

/// Passes of one optimizer step: what it takes to reach the target batch.
constexpr std::uint64_t micro_steps_of(std::uint64_t target_batch, std::int64_t micro_batch) {
  auto micro = static_cast<std::uint64_t>(micro_batch);
  return (target_batch + micro - 1) / micro;
}

} // namespace waggle
