#pragma once

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Copies of the training state: downloads, comparisons with other peers, checkpoints.
class state_metrics {
public:
  explicit state_metrics(metric_registry& registry) : in_(registry) {}

  using outcome = label<"outcome", "complete", "resumed", "failed", "refused", "hash_mismatch">;
  using check = label<"outcome", "equal", "differing", "minority">;
  using direction = label<"direction", "in", "out">;

  /// A download that brought a state: `complete`, or `resumed` if its parts came from several
  /// donors.
  void count_state_loaded(bool resumed, double seconds) {
    downloads_.at(resumed ? outcome{"resumed"} : outcome{"complete"}).Increment();
    download_seconds_.at().Observe(seconds);
  }
  /// One that did not. `hash_mismatch`: in the end, its bytes were not those that were announced.
  /// `refused`: it arrived, but was not the state that was asked for. `failed`: it did not arrive.
  void count_state_not_loaded(outcome why) { downloads_.at(why).Increment(); }
  void set_state_download_progress(double ratio) { download_progress_.at().Set(ratio); }
  void count_state_bytes(direction way, double bytes) { bytes_.at(way).Increment(bytes); }
  void count_state_hash_check(check found) { hash_checks_.at(found).Increment(); }
  void count_checkpoint_saved(double seconds, double now_unix) {
    checkpoints_.at("ok").Increment();
    checkpoint_seconds_.at().Observe(seconds);
    checkpoint_time_.at().Set(now_unix);
  }
  void count_checkpoint_failed() { checkpoints_.at("failed").Increment(); }

private:
  metric_registry& in_;
  counter<outcome> downloads_{in_, "waggle_state_downloads_total", "State downloads by outcome."};
  histogram<> download_seconds_{in_, "waggle_state_download_duration_seconds",
                                "Time of a download that brought a state.", round_seconds};
  gauge<> download_progress_{in_, "waggle_state_download_progress_ratio",
                             "Progress of the current download, 0 to 1."};
  counter<direction> bytes_{in_, "waggle_state_bytes_total",
                            "Bytes of state transferred, by direction."};
  counter<check> hash_checks_{
    in_, "waggle_state_hash_checks_total",
    "Epochs in which the parameters' hash was compared with the other peers': all equal, "
    "some differing, own ones of a minority."};
  counter<label<"outcome", "ok", "failed">> checkpoints_{in_, "waggle_checkpoint_saves_total",
                                                         "Checkpoints by outcome."};
  histogram<> checkpoint_seconds_{in_, "waggle_checkpoint_duration_seconds",
                                  "Time to write a checkpoint.", round_seconds};
  late_gauge checkpoint_time_{in_, "waggle_checkpoint_last_success_timestamp_seconds",
                              "When the last checkpoint was written, Unix time."};
};

} // namespace waggle
