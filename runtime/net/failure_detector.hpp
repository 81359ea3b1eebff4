#pragma once

#include <cstddef>
#include <deque>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

struct failure_detector_options {
  /// A sign of life is expected this often, at least: the interval of the pings.
  milliseconds expected{1'000};
  /// Silence is death when its chance, by what was seen so far, is below 10^-threshold. Raise it if
  /// links are lost (`timeout`) to peers that are well.
  double threshold = 8;
  /// The intervals that are remembered.
  std::size_t window = 32;
  /// The deviation of the intervals counts as at least this part of `expected`: a quiet, healthy
  /// link has next to none, and would be given up for a hiccup.
  double deviation_min = 0.3;
  /// Longer silence is death, whatever was seen so far.
  milliseconds silence_max{5'000};
};

/// Fails with ec::bad_config and what to change.
status check_failure_detector(const failure_detector_options& options);

/// When to give up a peer that says nothing: the accrual detector of Hayashibara et al. 2004 ("The
/// φ accrual failure detector"), with a normal distribution over the last intervals between signs
/// of life. φ is −log10 of the chance that a living peer is silent for so long.
///
/// With the defaults a peer that answers each ping at once is given up 2.7 ping intervals after its
/// last sign of life; one whose answers come in fits and starts later, up to `silence_max`.
///
/// Knows no clock. Not thread-safe.
class failure_detector {
public:
  failure_detector(failure_detector_options options, steady_time now);

  /// A sign of life. To be told once for all that came since the last look, with the time of the
  /// last: what counts is how long the peer may be silent, not how dense its frames are.
  void heard(steady_time when);
  /// We were not running for so long, and could not have heard anything.
  void slept(steady_time::duration how_long);

  [[nodiscard]] double phi(steady_time now) const;
  /// The moment at which silence becomes death. Not before the last sign of life plus `expected`.
  [[nodiscard]] steady_time suspect_at() const;
  [[nodiscard]] bool suspects(steady_time now) const { return now >= suspect_at(); }
  [[nodiscard]] steady_time last_seen() const { return last_; }

private:
  [[nodiscard]] double mean() const;
  [[nodiscard]] double deviation() const; // seconds, as the mean

  failure_detector_options options_;
  double deviations_; // of silence beyond the mean that make φ reach the threshold
  steady_time last_;
  std::deque<double> intervals_; // seconds
};

} // namespace waggle::net
