#pragma once

#include <deque>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

struct failure_detector_options {
  /// The interval of the pings: a sign of life is expected at least this often.
  milliseconds expected{1'000};
  /// A peer is suspected when the probability of its silence, estimated from the remembered
  /// intervals, is below 10^-threshold. Raise it if links to healthy peers are lost (`timeout`).
  double threshold = 8;
  /// After a longer silence the peer is suspected, whatever the intervals were.
  milliseconds silence_max{5'000};
};

/// Fails with ec::bad_config and what to change.
status check_failure_detector(const failure_detector_options& options);

/// Decides when to give up a silent peer: the accrual detector of Hayashibara et al. 2004 ("The
/// φ accrual failure detector"), with a normal distribution over the last intervals between signs
/// of life. φ is −log10 of the probability that a live peer is silent for so long.
///
/// With the defaults, a peer that answers each ping at once is given up 2.7 ping intervals after
/// its last sign of life. If the answers come irregularly, it takes longer, up to `silence_max`.
///
/// Does not read a clock. Not thread-safe.
class failure_detector {
public:
  failure_detector(failure_detector_options options, steady_time now);

  /// Records a sign of life. Call it once for all frames since the last call, with the time of the
  /// last one: the intervals measure how long the peer is silent, not how frequent its frames are.
  void received(steady_time when);
  /// This process was suspended for `how_long` and could not receive anything.
  void slept(steady_time::duration how_long);

  /// When the peer becomes suspect. Not before the last sign of life plus `expected`.
  [[nodiscard]] steady_time suspect_at() const;
  [[nodiscard]] bool suspects(steady_time now) const { return now >= suspect_at(); }
  [[nodiscard]] steady_time last_seen() const { return last_; }

private:
  [[nodiscard]] double mean() const;
  [[nodiscard]] double deviation() const; // seconds, like the mean

  failure_detector_options options_;
  double deviations_; // how many above the mean a silence is when φ reaches the threshold
  steady_time last_;
  std::deque<double> intervals_; // seconds
};

} // namespace waggle::net
