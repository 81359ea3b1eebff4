#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"
#include "runtime/training/micro_step.hpp"

namespace waggle {

/// How the scale of the loss develops. All numbers are powers of two, so that scaling and unscaling
/// round nothing.
struct loss_scale_rule {
  double initial = 65536;
  double growth = 2;     // factor after `growth_interval` updates without an overflow; 1: constant
  double back_off = 0.5; // factor after an overflow; 1: constant
  std::uint64_t growth_interval = 2000;
};

/// The rule of a scale that never changes.
constexpr loss_scale_rule constant_scale(double scale) {
  return {scale, 1, 1, 1};
}

/// Chooses the number by which the loss is multiplied before the backward pass, so that small
/// gradients do not become zero in float16. The gradient of each pass is divided by it again before
/// it is accumulated, so peers with different scales can average.
///
/// A pass overflows if its loss is finite and its gradient is not: the scale was too large. (If the
/// loss is not finite either, a smaller scale would not help.) The scale then shrinks at once. It
/// grows after `growth_interval` updates of the run in sequence without an overflow; how many
/// passes an update consists of does not matter. Defaults and rule are those of
/// torch.cuda.amp.GradScaler, except for the bounds.
///
/// Has no tensors. Thread-safe: passes and updates are on different threads.
class loss_scaler {
public:
  /// At 1, an overflow is not the fault of the scale. Up to 2^64, gradients of up to 10^19 fit into
  /// a float32.
  static constexpr double scale_min = 1;
  static constexpr double scale_max = 18446744073709551616.0;

  /// REQUIRES: the numbers are powers of two, initial within the bounds, growth at least 1,
  /// back_off at most 1, the interval at least 1.
  explicit loss_scaler(const loss_scale_rule& rule = loss_scale_rule{});

  [[nodiscard]] double scale() const;
  /// `pass` had the scale `used`: sets its scale, and whether it overflowed. `loss_is_finite`: the
  /// loss, or if it is not known, probably.
  void note(micro_step& pass, double used, bool loss_is_finite);
  /// A pass with the scale `used` overflowed: the next scale is smaller than that. `used` differs
  /// from `scale()` if the scale grew while gradients were accumulated that are scaled themselves.
  /// False: the scale is constant, so that nothing will get better.
  bool on_overflow(double used);
  /// The optimizer has made a step.
  void on_update();

  /// The scale and the progress toward its next growth, for a peer that restarts.
  [[nodiscard]] std::string save() const;
  /// Continues from what `save` returned, unless the scale is constant. Fails with ec::malformed;
  /// nothing changes then.
  status load(std::string_view saved);

  /// Whether `x` is 2^n for a whole n.
  static bool is_power_of_two(double x);

private:
  [[nodiscard]] bool is_constant() const { return rule_.growth == 1 && rule_.back_off == 1; }

  const loss_scale_rule rule_;
  mutable std::mutex mutex_; // guards what follows
  double scale_;
  std::uint64_t good_updates_ = 0; // in sequence; below growth_interval
  bool overflowed_ = false;        // since the last update
};

} // namespace waggle
