#pragma once

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Copies of the training state: downloads, comparisons with other peers, checkpoints.
class state_metrics {
  metric_registry& in_;

public:
  explicit state_metrics(metric_registry& registry) : in_(registry) {}

  using outcome = label<"outcome", "complete", "resumed", "failed", "refused", "hash_mismatch">;
  using check = label<"outcome", "equal", "differing", "minority">;
  using direction = label<"direction", "in", "out">;

  counter<outcome> downloads{in_, "waggle_state_downloads_total", "State downloads by outcome."};
  histogram<> download_durations{in_, "waggle_state_download_duration_seconds",
                                 "Time of a download that brought a state.", round_seconds};
  gauge<> set_state_download_progress{in_, "waggle_state_download_progress_ratio",
                                      "Progress of the current download, 0 to 1."};
  counter<direction> count_state_bytes{in_, "waggle_state_bytes_total",
                                       "Bytes of state transferred, by direction."};
  counter<check> count_state_hash_check{
    in_, "waggle_state_hash_checks_total",
    "Epochs in which the parameters' hash was compared with the other peers': all equal, "
    "some differing, own ones of a minority."};
  counter<label<"outcome", "ok", "failed">> checkpoints{in_, "waggle_checkpoint_saves_total",
                                                        "Checkpoints by outcome."};
  histogram<> checkpoint_durations{in_, "waggle_checkpoint_duration_seconds",
                                   "Time to write a checkpoint.", round_seconds};
  late_gauge last_checkpoint{in_, "waggle_checkpoint_last_success_timestamp_seconds",
                             "When the last checkpoint was written, Unix time."};

  /// A download that brought a state: `complete`, or `resumed` if its parts came from several
  /// donors.
  void count_state_loaded(bool resumed, double seconds) {
    downloads(resumed ? outcome{"resumed"} : outcome{"complete"});
    download_durations(seconds);
  }
  /// One that did not. `hash_mismatch`: in the end, its bytes were not those that were announced.
  /// `refused`: it arrived, but was not the state that was asked for. `failed`: it did not arrive.
  void count_state_not_loaded(outcome why) { downloads(why); }
  void count_checkpoint_saved(double seconds, double now_unix) {
    checkpoints("ok");
    checkpoint_durations(seconds);
    last_checkpoint(now_unix);
  }
  void count_checkpoint_failed() { checkpoints("failed"); }
};

} // namespace waggle
