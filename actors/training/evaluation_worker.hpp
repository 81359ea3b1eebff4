#pragma once

#include <atomic>
#include <memory>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/training/evaluation.hpp"

namespace waggle {

struct evaluation_worker {
  static inline const char* name = "evaluation-worker";
  std::unique_ptr<evaluator> with; // made by the first evaluation
};

/// Measures copies of the weights, so that no pass waits for an evaluation. Blocks while it
/// computes, so production code spawns it detached. Reports metrics, and a line in the log.
/// @param stop set when the peer ends, so that it does not wait for the rest of an evaluation.
evaluation_worker_actor::behavior_type
measure_weights(evaluation_worker_actor::stateful_pointer<evaluation_worker> self,
                const node_context& ctx, const evaluator_factory& make,
                const std::shared_ptr<std::atomic<bool>>& stop);

} // namespace waggle
