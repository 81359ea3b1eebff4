#include "runtime/training/loss_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/core/byte_io.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

loss_scaler::loss_scaler(const loss_scale_rule& rule) : rule_(rule), scale_(rule.initial) {
  for (double x : {rule.initial, rule.growth, rule.back_off})
    WAGGLE_CHECK(is_power_of_two(x), std::to_string(x));
  WAGGLE_CHECK(rule.initial >= scale_min && rule.initial <= scale_max,
               std::to_string(rule.initial));
  WAGGLE_CHECK(rule.growth >= 1 && rule.back_off <= 1, "an overflow must not enlarge the scale");
  WAGGLE_CHECK(rule.growth_interval >= 1, "an interval of at least one update");
}

double loss_scaler::scale() const {
  std::lock_guard lock{mutex_};
  return scale_;
}

void loss_scaler::note(micro_step& pass, double used, bool loss_is_finite) {
  pass.scale = used;
  pass.overflow = !pass.finite && loss_is_finite && used > scale_min && on_overflow(used);
}

bool loss_scaler::on_overflow(double used) {
  std::lock_guard lock{mutex_};
  overflowed_ = true;
  scale_ = std::max(std::min(scale_, used * rule_.back_off), scale_min);
  return !is_constant();
}

void loss_scaler::on_update() {
  std::lock_guard lock{mutex_};
  if (std::exchange(overflowed_, false)) {
    good_updates_ = 0;
    return;
  }
  if (++good_updates_ < rule_.growth_interval)
    return;
  good_updates_ = 0;
  scale_ = std::min(scale_ * rule_.growth, scale_max);
}

std::string loss_scaler::save() const {
  std::lock_guard lock{mutex_};
  return byte_writer{}.put(scale_, good_updates_, overflowed_).take();
}

status loss_scaler::load(std::string_view saved) {
  byte_reader in{saved};
  auto scale = in.get<double>();
  auto good_updates = in.get<std::uint64_t>();
  auto overflowed = in.get<bool>();
  if (!in.ok() || in.left() != 0)
    return failure{ec::malformed, "the state of the loss scaler has the wrong length"};
  if (!is_power_of_two(scale) || scale < scale_min || scale > scale_max)
    return failure{ec::malformed, "the state of the loss scaler holds no scale"};
  if (is_constant())
    return done{};
  std::lock_guard lock{mutex_};
  scale_ = scale;
  good_updates_ = std::min(good_updates, rule_.growth_interval - 1);
  overflowed_ = overflowed;
  return done{};
}

bool loss_scaler::is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && std::frexp(x, &exponent) == 0.5;
}

} // namespace waggle
