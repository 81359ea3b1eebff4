#pragma once

#include <algorithm>

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Training: samples, steps and time. What the status says, too, has its metric in
/// runtime/status/facts.cpp.
class training_metrics {
  metric_registry& in_;

public:
  explicit training_metrics(metric_registry& registry) : in_(registry) {}

  using outcome = label<"outcome", "used", "dropped">;
  using discarded = label<"reason", "left_out", "history_lost", "not_finite", "behind", "stopped">;
  using phase = label<"phase", "forward_backward", "optimizer", "state_copy">;
  using rule = label<"rule", "slow_download", "small_rounds", "own_gradients", "short_epochs",
                     "small_batches", "zero_updates">;
  using place = label<"where", "loss", "gradient", "parameters">;
  using activity = label<"activity", "pass", "update", "round", "search", "download", "idle">;

  counter<outcome> count_samples{in_, "waggle_training_samples_total",
                                 "Samples that entered an update, or were dropped."};
  counter<discarded> count_discarded{in_, "waggle_training_samples_discarded_total",
                                     "Samples that did not enter an update, by reason."};
  late_gauge set_disbelieved_peers{
    in_, "waggle_training_disbelieved_peers",
    "Peers whose claims are not believed: they claim another history than most of those with which "
    "this peer completed rounds, or admitted it into another group."};
  late_gauge set_updates_waiting{in_, "waggle_training_updates_waiting",
                                 "Averaged updates not applied to the model yet."};
  histogram<phase> observe_step{in_, "waggle_training_step_duration_seconds",
                                "Time of a step's phases.", rpc_seconds};
  gauge<> set_batch_progress{in_, "waggle_training_target_batch_progress_ratio",
                             "The swarm's progress toward the target batch size."};
  late_gauge set_eval_duration{in_, "waggle_training_eval_duration_seconds",
                               "How long the last evaluation took."};
  late_gauge set_gradient_norm{in_, "waggle_training_gradient_norm",
                               "Norm of the last applied gradient."};
  late_gauge set_drift{
    in_, "waggle_training_drift",
    "Norm of the difference between the parameters that this peer contributed to the "
    "last round and their mean. Only for strategies that average parameters."};
  gauge<rule> set_run_health{
    in_, "waggle_run_health",
    "1 while the settings of the run do not suit it, by rule; the notice of the status explains "
    "it."};
  counter<place> count_nonfinite{in_, "waggle_training_nonfinite_total",
                                 "NaN or infinite values seen, by place."};
  late_gauge set_loss_scale{in_, "waggle_training_loss_scale",
                            "The loss was multiplied by this in the last pass; see --loss-scale."};
  counter<> count_loss_scale_overflow{
    in_, "waggle_training_loss_scale_overflows_total",
    "Passes whose gradient was dropped because the loss scale was too large."};
  counter<activity> activity_seconds{
    in_, "waggle_training_time_seconds_total",
    "How the trainer spends its time: computing a pass, applying an update, or "
    "waiting for a round, a group, a state, or nothing of these (idle)."};
  counter<> count_local_fallback{
    in_, "waggle_training_local_fallbacks_total",
    "Epochs that ended with this peer's own gradient because the round failed."};

  void count_training_time(activity what, double seconds) {
    activity_seconds(what, std::max(0.0, seconds));
  }
};

} // namespace waggle
