#pragma once

#include "runtime/metrics/metric.hpp"

namespace waggle {

/// Copies of the training state: downloads, comparisons with other peers, checkpoints.
class state_metrics {
public:
  explicit state_metrics(metric_registry& registry) : in_(registry) {}

  /// A download that brought a state: `complete`, or `resumed` if its parts came from several
  /// donors.
  void count_state_loaded(bool resumed, double seconds) {
    downloads_.at(resumed ? "resumed" : "complete").Increment();
    download_seconds_.at().Observe(seconds);
  }
  /// One that did not. `hash_mismatch`: in the end, its bytes were not those that were announced.
  /// `refused`: it arrived, but was not the state that was asked for. `failed`: it did not arrive.
  void count_state_not_loaded(std::string_view outcome) { downloads_.at(outcome).Increment(); }
  void set_state_download_progress(double ratio) { download_progress_.at().Set(ratio); }
  void count_state_bytes(std::string_view direction, double bytes) {
    bytes_.at(direction).Increment(bytes);
  }
  void count_state_hash_check(std::string_view outcome) { hash_checks_.at(outcome).Increment(); }
  void count_checkpoint_saved(double seconds, double now_unix) {
    checkpoints_.at("ok").Increment();
    checkpoint_seconds_.at().Observe(seconds);
    checkpoint_time_.at().Set(now_unix);
  }
  void count_checkpoint_failed() { checkpoints_.at("failed").Increment(); }

private:
  metric_registry& in_;
  counter<1> downloads_{
    in_, "waggle_state_downloads_total", "State downloads by outcome.",
    label{"outcome", {"complete", "resumed", "failed", "refused", "hash_mismatch"}}};
  histogram<> download_seconds_{in_, "waggle_state_download_duration_seconds",
                                "Time of a download that brought a state.", round_seconds};
  gauge<> download_progress_{in_, "waggle_state_download_progress_ratio",
                             "Progress of the current download, 0 to 1."};
  counter<1> bytes_{in_, "waggle_state_bytes_total", "Bytes of state transferred, by direction.",
                    label{"direction", {"in", "out"}}};
  counter<1> hash_checks_{
    in_, "waggle_state_hash_checks_total",
    "Epochs in which the parameters' hash was compared with the other peers': all equal, "
    "some differing, own ones of a minority.",
    label{"outcome", {"equal", "differing", "minority"}}};
  counter<1> checkpoints_{in_, "waggle_checkpoint_saves_total", "Checkpoints by outcome.",
                          label{"outcome", {"ok", "failed"}}};
  histogram<> checkpoint_seconds_{in_, "waggle_checkpoint_duration_seconds",
                                  "Time to write a checkpoint.", round_seconds};
  late_gauge checkpoint_time_{in_, "waggle_checkpoint_last_success_timestamp_seconds",
                              "When the last checkpoint was written, Unix time."};
};

} // namespace waggle
