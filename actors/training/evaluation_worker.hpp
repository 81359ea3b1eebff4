#pragma once

#include <atomic>
#include <memory>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/training/evaluation.hpp"

namespace waggle {

/// Measures copies of the weights, so that no pass waits for an evaluation. Blocks while it
/// computes, so production code spawns it detached. Reports metrics, and a line in the log.
class evaluation_worker final : public evaluation_worker_actor::base {
public:
  /// `stop`: set when the peer ends, so that it does not wait for the rest of an evaluation.
  evaluation_worker(caf::actor_config& cfg, node_context ctx, evaluator_factory make,
                    std::shared_ptr<const std::atomic<bool>> stop);

  const char* name() const override { return "evaluation-worker"; }

protected:
  behavior_type make_behavior() override;

private:
  caf::result<model_evaluated> measure(const evaluate_weights& msg);
  result<evaluation> measured(const evaluate_weights& msg);

  const node_context ctx_;
  const evaluator_factory make_;
  const std::shared_ptr<const std::atomic<bool>> stop_;
  std::unique_ptr<evaluator> evaluator_; // made by the first evaluation
};

} // namespace waggle
