#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/core/time.hpp"

namespace waggle {

/// Samples per second, from an exponential moving average of seconds per sample with bias
/// correction for its start at zero. Not thread-safe.
class throughput {
public:
  explicit throughput(double alpha = 0.1) : alpha_(alpha) {}

  /// `samples` took `seconds`. Zero samples are ignored.
  void update(double samples, double seconds) {
    if (samples <= 0)
      return;
    ema_ = alpha_ * seconds / samples + (1 - alpha_) * ema_;
    ++updates_;
    auto corrected = ema_ / (1 - std::pow(1 - alpha_, static_cast<double>(updates_)));
    rate_ = 1 / std::max(corrected, 1e-20);
  }

  /// 0 before the first update.
  [[nodiscard]] double samples_per_second() const { return rate_; }

private:
  double alpha_;
  double ema_ = 0; // seconds per sample
  std::uint64_t updates_ = 0;
  double rate_ = 0;
};

} // namespace waggle
