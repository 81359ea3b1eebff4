#pragma once

#include <algorithm>
#include <chrono>

#include "runtime/core/time.hpp"

namespace waggle {

/// How often a peer reports in an epoch. Whoever waits for reports waits for the epoch to end, so
/// the longer that is away, the rarer they are; epochs of less than a second are reported as they
/// are. A report that says something else than more samples does not wait. Not thread-safe.
///
/// A report is pushed to connected peers, stored for the others, and noted: a note has its samples.
class report_pace {
public:
  using duration = std::chrono::nanoseconds;

  struct intervals {
    duration push{0};  // at least
    duration store{0}; // at least
    duration ttl{0};   // of a report, which is repeated before it expires
  };
  report_pace(const intervals& of, steady_time now)
    : of_(of), began_(now), pushed_(now), stored_(now) {}

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
  /// The same for notes of more samples, which say when the epoch may end: in epochs of more than a
  /// few seconds. Of one of which nobody knows how long it lasts, they are late by at most a
  /// sixteenth of it, and by a second.
  [[nodiscard]] duration between_notes(steady_time now) const {
    auto elapsed = seconds_of(now - began_);
    if (std::max(epoch_, elapsed) < noted_each_time)
      return duration{0};
    return epoch_ > 0 ? limited((epoch_ - elapsed) / 8, 5) : limited(elapsed / 16, 1);
  }

  /// There is a new report. `news`: it says more than samples. `moved`: who reads what is stored
  /// needs it. `may_end`: so may the epoch.
  void changed(bool news, bool moved, bool may_end) {
    push_due_ = note_due_ = true;
    news_due_ = news_due_ || news;
    store_due_ = store_due_ || moved;
    may_end_ = may_end;
  }
  [[nodiscard]] bool push_due(steady_time now) const {
    auto least = news_due_ ? of_.push : std::max(of_.push, between_reports(now));
    return push_due_ && now - pushed_ >= least;
  }
  /// Rarer with more `peers`, so that a bounded number is sent each second.
  [[nodiscard]] bool note_due(steady_time now, std::size_t peers) const {
    duration least = std::chrono::milliseconds{peers <= 8 ? 0 : 2 * peers};
    return note_due_
           && now - noted_ >= (may_end_ || news_due_ ? least : std::max(least, between_notes(now)));
  }
  /// Whether what was pushed would expire.
  [[nodiscard]] bool repeat_due(steady_time now) const { return now - pushed_ >= of_.ttl / 2; }
  [[nodiscard]] bool store_due(steady_time now) const {
    return now - stored_ >= (store_due_ ? of_.store : std::max(of_.store, of_.ttl / 2));
  }
  void noted(steady_time now) {
    note_due_ = false;
    noted_ = now;
  }
  void pushed(steady_time now) {
    noted(now);
    push_due_ = news_due_ = false;
    pushed_ = now;
  }
  void stored(steady_time now) {
    store_due_ = false;
    stored_ = now;
  }

private:
  static constexpr double shortest = 1;        // seconds
  static constexpr double noted_each_time = 5; // seconds

  [[nodiscard]] double lasts(steady_time now) const {
    auto all = std::max(epoch_, seconds_of(now - began_));
    return all >= shortest ? all : 0;
  }

  static duration limited(double seconds, double longest) {
    return std::chrono::duration_cast<duration>(
      std::chrono::duration<double>{std::clamp(seconds, 0.0, longest)});
  }

  intervals of_;
  steady_time began_;
  double epoch_ = 0; // seconds
  steady_time pushed_;
  steady_time stored_;
  steady_time noted_{};
  bool push_due_ = false;
  bool news_due_ = false; // the push that is due says more than samples
  bool note_due_ = false;
  bool store_due_ = false;
  bool may_end_ = false;
};

} // namespace waggle
