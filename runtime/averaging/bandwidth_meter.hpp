#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "runtime/core/bytes.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// What this peer's own connection can carry, from transfers that it made anyway: an exponential
/// moving average of seconds per byte, corrected for its start at zero (spec/averaging.md §1.5).
///
/// Feed it only with transfers that waited for our connection: bytes that left (or came) without a
/// pause for somebody else to answer, and the time from the first byte to the last. Otherwise it
/// measures how long the others thought.
///
/// Seconds per byte, not bytes per second: the time that a transfer will take is what shares are
/// balanced for, and one lucky burst must not hide many slow transfers. Not thread-safe.
class bandwidth_meter {
public:
  struct options {
    double alpha = 0.1; // weight of the newest transfer
    /// Smaller transfers fit into buffers on the way, shorter ones into the clock's error: they
    /// tell nothing.
    std::uint64_t bytes_min = 256_KiB;
    double seconds_min = 0.001;
    std::uint32_t transfers_min = 3; // before these, chance has the word
    /// A measurement older than this is no knowledge any more: the peer counts as unknown, and
    /// measures anew.
    milliseconds forget_after{600'000};
  };

  explicit bandwidth_meter(options opts) : options_(opts) {}
  bandwidth_meter() : bandwidth_meter(options{}) {}

  /// `bytes` took `seconds`. Transfers that cannot tell are ignored.
  void update(std::uint64_t bytes, double seconds, steady_time now) {
    if (bytes < options_.bytes_min || !(seconds >= options_.seconds_min) || !std::isfinite(seconds))
      return;
    if (updates_ > 0 && now - last_ > options_.forget_after)
      *this = bandwidth_meter{options_};
    ema_ = options_.alpha * seconds / static_cast<double>(bytes) + (1 - options_.alpha) * ema_;
    ++updates_;
    last_ = now;
  }

  /// Bytes per second; nothing while it is not known.
  [[nodiscard]] std::optional<double> bytes_per_second(steady_time now) const {
    if (updates_ < std::max(options_.transfers_min, 1U) || now - last_ > options_.forget_after)
      return std::nullopt;
    auto corrected = ema_ / (1 - std::pow(1 - options_.alpha, static_cast<double>(updates_)));
    return 1 / std::max(corrected, 1e-20);
  }

private:
  options options_;
  double ema_ = 0; // seconds per byte
  std::uint64_t updates_ = 0;
  steady_time last_{};
};

} // namespace waggle
