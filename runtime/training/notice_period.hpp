#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// That the machine of a peer will be taken away: from a cloud, a scheduler or the operator.
/// Thread-safe.
class leave_notice {
public:
  static constexpr milliseconds within_min{1'000};
  static constexpr milliseconds within_max{3'600'000};

  /// Of several, the shortest counts. Fails with a sentence.
  status give(milliseconds within) {
    if (auto fits = check(within); !fits)
      return fits;
    auto before = within_.load();
    while ((before == 0 || within.count() < before)
           && !within_.compare_exchange_weak(before, within.count())) {
    }
    return done{};
  }
  [[nodiscard]] static status check(milliseconds within) {
    if (within >= within_min && within <= within_max)
      return done{};
    return failure{
      ec::bad_config,
      "the notice is of " + std::to_string(within.count())
        + " ms, and must be from 1 s, which a goodbye takes, to 3600 s, in which the peer "
          "computes nothing: pass the time until the machine is taken away"};
  }
  /// Nothing: none was given.
  [[nodiscard]] std::optional<milliseconds> within() const {
    auto is = within_.load();
    return is > 0 ? std::optional{milliseconds{is}} : std::nullopt;
  }

private:
  std::atomic<milliseconds::rep> within_{0};
};

/// What a peer that is to leave has not finished.
struct unfinished_work {
  std::uint64_t samples = 0; // of its own passes, in no update
  bool pass_runs = false;
  bool round_runs = false; // or its update is not applied
  bool alone = false;      // nobody else adds samples to those of an update
  bool only_donor = false; // a peer needs the run's state, and no other one can give it
  bool hands_over = false; // what only this peer has is on its way to a neighbour
};

/// The time from a notice until its peer leaves. The peer begins no pass, and stays a member until
/// its samples are in an update. Not thread-safe.
class notice_period {
public:
  /// Kept of the notice for the last checkpoint and the goodbye: a fifth, and at most this.
  static constexpr milliseconds goodbye_max{2'000};
  /// Where nobody adds samples, a round that is due begins within this time.
  static constexpr milliseconds alone_max{1'000};
  /// The samples a second that a peer claims meanwhile: 0 would mean that nobody has measured them.
  static constexpr double speed = 1e-6;

  /// Later calls can only make the time shorter. Returns whether it is the first one.
  bool begin(milliseconds within, steady_time now) {
    auto ends = now + within - std::min(within / 5, goodbye_max);
    bool first = !ends_;
    if (first)
      began_ = now;
    ends_ = std::min(ends_.value_or(ends), ends);
    return first;
  }
  [[nodiscard]] bool begun() const { return ends_.has_value(); }
  /// Whether the peer leaves now, which it then does. REQUIRES: begun.
  bool ends(const unfinished_work& left, steady_time now) {
    bool busy = left.pass_runs || left.round_runs || left.only_donor || left.hands_over;
    bool nothing_to_wait_for = left.samples == 0 || (left.alone && now - began_ >= alone_max);
    ended_ = ended_ || now >= *ends_ || (!busy && nothing_to_wait_for);
    return ended_;
  }
  [[nodiscard]] bool ended() const { return ended_; }
  /// REQUIRES: begun.
  [[nodiscard]] milliseconds left(steady_time now) const {
    return std::chrono::floor<milliseconds>(*ends_ - now);
  }
  /// Whether the next round, which is expected in so many seconds (nothing: nobody knows), is too
  /// far away to be waited for: it would leave less than half of the time. REQUIRES: begun.
  [[nodiscard]] bool hurries(std::optional<double> next_round, steady_time now) const {
    auto half = began_ + (*ends_ - began_) / 2;
    return !next_round || seconds_of(half - now) < std::max(*next_round, 0.0);
  }

private:
  std::optional<steady_time> ends_;
  steady_time began_;
  bool ended_ = false;
};

} // namespace waggle
