#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace waggle {

/// The losses of the micro-steps, for display: a moving average, and the loss with which a peer
/// began. Holds finite losses only. Not thread-safe.
class loss_record {
public:
  /// The weight of the newest loss in the moving average.
  static constexpr double smoothing = 0.05;
  /// A first epoch of many steps (`diloco`) ends far below the loss with which it began.
  static constexpr std::uint64_t first_steps_max = 8;

  void note(double loss) {
    if (std::isnan(loss)) // a loop that does not report its loss
      return;
    smoothed_ = std::isnan(smoothed_) ? loss : smoothed_ + smoothing * (loss - smoothed_);
    if (std::isnan(of_first_epoch_) && steps_ < first_steps_max) {
      sum_ += loss;
      ++steps_;
    }
  }

  /// An epoch ended with a step. If no loss was noted in it, the next epoch counts as the first.
  void end_epoch() {
    if (steps_ > 0 && std::isnan(of_first_epoch_))
      of_first_epoch_ = sum_ / static_cast<double>(steps_);
  }

  /// NaN before the first loss.
  [[nodiscard]] double smoothed() const { return smoothed_; }
  /// The mean of the first losses before the first epoch's end; NaN until then.
  [[nodiscard]] double of_first_epoch() const { return of_first_epoch_; }

private:
  double smoothed_ = std::numeric_limits<double>::quiet_NaN();
  double of_first_epoch_ = std::numeric_limits<double>::quiet_NaN();
  double sum_ = 0;
  std::uint64_t steps_ = 0;
};

} // namespace waggle
