#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/core/time.hpp"

namespace waggle {

/// How often a peer reports in an epoch. Whoever waits for reports waits for the epoch to end, so
/// the longer that is away, the rarer they are; epochs of a few seconds are reported as they are. A
/// report that says something else than more samples does not wait. Not thread-safe.
class report_pace {
public:
  using duration = std::chrono::nanoseconds;

  /// An epoch has begun.
  void begin(steady_time now) { began_ = now; }
  /// How long epochs last. @param seconds 0: not known.
  void expect(double seconds) { epoch_ = seconds >= shortest ? seconds : 0; }

  /// At least from one signed report to the next. Of an epoch that lasts longer than expected, the
  /// time so far counts.
  [[nodiscard]] duration between_reports(steady_time now) const {
    return limited(lasts(now) / 4, 15);
  }
  /// The same for readings of what others have stored, which only shows peers without a link to us.
  [[nodiscard]] duration between_readings(steady_time now) const {
    return limited(lasts(now) / 2, 30);
  }
  /// The same for notes of more samples, which say when the epoch may end.
  [[nodiscard]] duration between_notes(steady_time now) const {
    return limited((epoch_ - seconds_of(now - began_)) / 8, 5);
  }

private:
  static constexpr double shortest = 5; // seconds

  [[nodiscard]] double lasts(steady_time now) const {
    auto all = std::max(epoch_, seconds_of(now - began_));
    return all >= shortest ? all : 0;
  }

  static duration limited(double seconds, double longest) {
    return std::chrono::duration_cast<duration>(
      std::chrono::duration<double>{std::clamp(seconds, 0.0, longest)});
  }

  steady_time began_;
  double epoch_ = 0; // seconds
};

} // namespace waggle
