#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/training/state_keeper.hpp"
#include "runtime/training/checkpoint_store.hpp"
#include "runtime/training/evaluation.hpp"
#include "runtime/training/parameter_sample.hpp"
#include "runtime/training/trained_model.hpp"

namespace waggle {

/// Where a model_worker runs passes.
enum class pass_place : std::uint8_t {
  in_turn,           // itself, in turn with the updates
  beside,            // an actor beside it: learner_abilities::passes_beside_updates
  in_another_thread, // the same, detached
};

/// Owns the model and executes the trainer's commands in order: its mailbox is the queue of pending
/// computations. Blocks while it computes, so production code spawns it detached.
class model_worker final : public model_worker_actor::base {
public:
  model_worker(caf::actor_config& cfg, node_context ctx, learner_factory make,
               std::optional<checkpoint_store> checkpoints, state_keeper_actor keeper,
               model_listener_actor listener, pass_place passes = pass_place::in_turn,
               std::optional<evaluation_plan> evaluation = std::nullopt);

  const char* name() const override { return "model-worker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  caf::result<model_ready> prepare();
  void resume(own_progress& kept);
  void pass(const run_pass& msg);
  [[nodiscard]] learner::early_gradient soon_over(steady_time began);
  void apply(const apply_update& update);
  void load(const load_image& msg);
  void evaluate_if_due();
  result<std::shared_ptr<model_copy>> copy();
  void resume_own(const checkpoint_store::search& found, own_progress& kept);
  void resume_curves(epoch_id last);
  caf::result<state_snapshot> checkpoint(const save_checkpoint& msg);
  caf::result<state_snapshot> snapshot(const get_state_snapshot& wanted);
  /// What peers compare at this epoch: of the parameters, or of a window (sample_parameters).
  parameter_sample compared();

  const node_context ctx_;
  const learner_factory make_;
  std::optional<checkpoint_store> checkpoints_;
  state_keeper_actor keeper_;
  model_listener_actor listener_;
  const pass_place place_;
  std::optional<trained_model> model_;
  std::shared_ptr<learner> shared_;
  const std::optional<evaluation_plan> evaluation_;
  evaluation_worker_actor evaluates_; // none: nothing is evaluated
  bool evaluating_ = false;
  steady_time evaluated_at_; // when the last evaluation ended
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  double pass_seconds_ = 0;            // smoothed
  std::uint64_t rounding_ = 0;         // of the learner
  std::string position_;               // of the data, after the samples in the model's state
  std::optional<state_snapshot> last_; // of the current epoch
  struct waiting_snapshot {
    epoch_id epoch;
    history past;
    std::vector<caf::typed_response_promise<state_snapshot>> promises;
  };
  std::shared_ptr<waiting_snapshot> making_; // the keeper completes it
};

} // namespace waggle
