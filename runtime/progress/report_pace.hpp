#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/core/time.hpp"

namespace waggle {

/// How often a peer reports in an epoch. Whoever waits for reports waits for the epoch to end, so
/// the longer that is away, the rarer they are; epochs of less than a second are reported as they
/// are. A report that says something else than more samples does not wait. Not thread-safe.
///
/// A report is pushed to connected peers, stored for the others, and noted: a note has its samples.
/// Notes say when the epoch may end, so they come the more often, the fewer samples it lacks.
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
  void begin(steady_time now) {
    began_ = now;
    noted_samples_ = 0;
  }
  /// How long epochs last. @param seconds 0: not known.
  void expect(double seconds) { epoch_ = seconds >= shortest ? seconds : 0; }

  /// At least from one signed report to the next. Of an epoch that lasts longer than expected, the
  /// time so far counts.
  [[nodiscard]] duration between_reports(steady_time now) const { return limited(lasts(now), 15); }
  /// The same for readings of what others have stored, which only shows peers without a link to us.
  [[nodiscard]] duration between_readings(steady_time now) const {
    return limited(lasts(now) / 2, 30);
  }

  /// There is a new report. `news`: it says more than samples. `moved`: who reads what is stored
  /// needs it. `missing`: see report_progress.
  void changed(bool news, bool moved, std::uint64_t samples, std::optional<std::uint64_t> missing) {
    push_due_ = note_due_ = true;
    news_due_ = news_due_ || news;
    store_due_ = store_due_ || moved;
    samples_ = samples;
    missing_ = missing;
  }
  [[nodiscard]] bool push_due(steady_time now) const {
    auto least = news_due_ ? of_.push : std::max(of_.push, between_reports(now));
    return push_due_ && now - pushed_ >= least;
  }
  /// Rarer with more `peers`, so that a bounded number is sent each second. What all of them have
  /// not noted yet is a quarter of the missing samples at most.
  [[nodiscard]] bool note_due(steady_time now, std::size_t peers) const {
    duration since = now - noted_;
    if (!note_due_ || since < std::chrono::milliseconds{peers <= 8 ? 0 : 2 * peers})
      return false;
    if (news_due_ || since >= longest_silence || lasts(now) == 0)
      return true;
    if (missing_)
      return (samples_ - std::min(samples_, noted_samples_)) * (peers + 1) * 4 >= *missing_;
    return since >= limited(lasts(now) / 8, 1);
  }
  /// Whether what was pushed would expire.
  [[nodiscard]] bool repeat_due(steady_time now) const { return now - pushed_ >= of_.ttl / 2; }
  [[nodiscard]] bool store_due(steady_time now) const {
    return now - stored_ >= (store_due_ ? of_.store : std::max(of_.store, of_.ttl / 2));
  }
  void noted(steady_time now) {
    note_due_ = false;
    noted_ = now;
    noted_samples_ = samples_;
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
  static constexpr double shortest = 1; // seconds
  static constexpr duration longest_silence = std::chrono::seconds{5};

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
  std::uint64_t samples_ = 0;
  std::uint64_t noted_samples_ = 0;
  std::optional<std::uint64_t> missing_;
};

} // namespace waggle
