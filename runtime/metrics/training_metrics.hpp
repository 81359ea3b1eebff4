#pragma once

#include <algorithm>
#include <cmath>

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Training: epochs, samples and steps.
class training_metrics {
public:
  explicit training_metrics(metric_registry& registry) : in_(registry) {}

  using outcome = label<"outcome", "used", "dropped">;
  using discarded = label<"reason", "left_out", "history_lost", "not_finite", "behind", "stopped">;
  using phase = label<"phase", "forward_backward", "optimizer", "state_copy">;
  using rule = label<"rule", "slow_download", "small_rounds", "own_gradients", "short_epochs",
                     "small_batches", "zero_updates">;
  using place = label<"where", "loss", "gradient", "parameters">;
  using activity = label<"activity", "pass", "update", "round", "search", "download", "idle">;

  void set_epochs(double own, double global) {
    epoch_.at().Set(own);
    global_epoch_.at().Set(global);
  }
  void count_samples(outcome which, double n) { samples_.at(which).Increment(n); }
  void count_discarded(discarded why, double n) { discarded_.at(why).Increment(n); }
  void set_effective_batch(double samples) { effective_batch_.at().Set(samples); }
  void set_histories(double n) { histories_.at().Set(n); }
  void set_differing_peers(double n) { differing_.at().Set(n); }
  void set_disbelieved_peers(double n) { disbelieved_.at().Set(n); }
  void set_provisional(bool provisional) { provisional_.at().Set(provisional ? 1 : 0); }
  void set_first_round(double seconds) { first_round_.at().Set(seconds); }
  void set_updates_waiting(double n) { updates_waiting_.at().Set(n); }
  void observe_step(phase which, double seconds) { step_seconds_.at(which).Observe(seconds); }
  void set_batch_progress(double ratio) { batch_progress_.at().Set(ratio); }
  void set_training(double loss, double learning_rate, double gradient_norm) {
    loss_.at().Set(loss);
    learning_rate_.at().Set(learning_rate);
    gradient_norm_.at().Set(gradient_norm);
  }
  /// `accuracy`: NaN if the model does not show its predictions.
  void set_evaluation(double loss, double accuracy, double seconds) {
    eval_loss_.at().Set(loss);
    if (!std::isnan(accuracy))
      eval_accuracy_.at().Set(accuracy);
    eval_seconds_.at().Set(seconds);
  }
  void set_rate_reductions(double n) { rate_reductions_.at().Set(n); }
  void set_run_health(rule which, bool holds) { run_health_.at(which).Set(holds ? 1 : 0); }
  void set_drift(double norm) { drift_.at().Set(norm); }
  void count_nonfinite(place where) { nonfinite_.at(where).Increment(); }
  void set_loss_scale(double scale) { loss_scale_.at().Set(scale); }
  void count_loss_scale_overflow() { overflows_.at().Increment(); }
  void count_training_time(activity what, double seconds) {
    activity_.at(what).Increment(std::max(0.0, seconds));
  }
  void count_local_fallback() { fallbacks_.at().Increment(); }

private:
  metric_registry& in_;
  late_gauge epoch_{in_, "waggle_training_epoch", "This peer's epoch."};
  late_gauge global_epoch_{in_, "waggle_training_global_epoch", "The swarm's epoch."};
  counter<outcome> samples_{in_, "waggle_training_samples_total",
                            "Samples that entered an update, or were dropped."};
  counter<discarded> discarded_{in_, "waggle_training_samples_discarded_total",
                                "Samples that did not enter an update, by reason."};
  late_gauge effective_batch_{in_, "waggle_training_effective_batch_samples",
                              "Samples of all contributors in the last update."};
  gauge<> histories_{in_, "waggle_training_histories",
                     "Histories that live peers train; 1 unless the run has forked."};
  late_gauge disbelieved_{
    in_, "waggle_training_disbelieved_peers",
    "Peers whose claims are not believed: they claim another history than most of those with which "
    "this peer completed rounds, or admitted it into another group."};
  late_gauge differing_{
    in_, "waggle_training_differing_peers",
    "Peers with our epoch and history but different parameters; 0 in a healthy run."};
  gauge<> provisional_{in_, "waggle_training_provisional",
                       "1 while this peer continues without most of its group."};
  late_gauge first_round_{in_, "waggle_training_first_round_seconds",
                          "From this peer's start to the end of its first round."};
  late_gauge updates_waiting_{in_, "waggle_training_updates_waiting",
                              "Averaged updates not applied to the model yet."};
  histogram<phase> step_seconds_{in_, "waggle_training_step_duration_seconds",
                                 "Time of a step's phases.", rpc_seconds};
  gauge<> batch_progress_{in_, "waggle_training_target_batch_progress_ratio",
                          "The swarm's progress toward the target batch size."};
  late_gauge loss_{in_, "waggle_training_loss", "Smoothed loss of this peer."};
  late_gauge eval_loss_{in_, "waggle_training_eval_loss",
                        "Loss of the shared weights on --eval-data."};
  late_gauge eval_accuracy_{in_, "waggle_training_eval_accuracy_ratio",
                            "Share of the predictions on --eval-data that are right."};
  late_gauge eval_seconds_{in_, "waggle_training_eval_duration_seconds",
                           "How long the last evaluation took."};
  late_gauge learning_rate_{in_, "waggle_training_learning_rate",
                            "Learning rate of the current epoch."};
  late_gauge rate_reductions_{in_, "waggle_training_learning_rate_reductions",
                              "How often the schedule plateau has lowered the learning rate of the "
                              "run. Only with --schedule plateau."};
  late_gauge gradient_norm_{in_, "waggle_training_gradient_norm",
                            "Norm of the last applied gradient."};
  late_gauge drift_{
    in_, "waggle_training_drift",
    "Norm of the difference between the parameters that this peer contributed to the "
    "last round and their mean. Only for strategies that average parameters."};
  gauge<rule> run_health_{
    in_, "waggle_run_health",
    "1 while the settings of the run do not suit it, by rule; the notice of the status explains "
    "it."};
  counter<place> nonfinite_{in_, "waggle_training_nonfinite_total",
                            "NaN or infinite values seen, by place."};
  late_gauge loss_scale_{in_, "waggle_training_loss_scale",
                         "The loss was multiplied by this in the last pass; see --loss-scale."};
  counter<> overflows_{in_, "waggle_training_loss_scale_overflows_total",
                       "Passes whose gradient was dropped because the loss scale was too large."};
  counter<activity> activity_{
    in_, "waggle_training_time_seconds_total",
    "How the trainer spends its time: computing a pass, applying an update, or "
    "waiting for a round, a group, a state, or nothing of these (idle)."};
  counter<> fallbacks_{in_, "waggle_training_local_fallbacks_total",
                       "Epochs that ended with this peer's own gradient because the round failed."};
};

} // namespace waggle
