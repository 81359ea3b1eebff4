#include "runtime/training/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace waggle {

double lr_schedule::at(epoch_id epoch) const {
  auto k = epoch.value();
  if (k < warmup_epochs)
    return peak * static_cast<double>(k + 1) / static_cast<double>(warmup_epochs);
  if (kind == shape::constant || total_epochs <= warmup_epochs)
    return peak;
  auto span = static_cast<double>(total_epochs - warmup_epochs);
  auto way = std::min(static_cast<double>(k - warmup_epochs) / span, 1.0);
  return floor + (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

result<lr_schedule::shape> parse_schedule(std::string_view name) {
  for (auto kind : {lr_schedule::shape::constant, lr_schedule::shape::warmup_cosine})
    if (to_string(kind) == name)
      return kind;
  return failure{ec::bad_config,
                 "'" + std::string{name} + "' is no schedule: use constant or warmup-cosine"};
}

std::string_view to_string(lr_schedule::shape kind) {
  switch (kind) {
    case lr_schedule::shape::constant:
      return "constant";
    case lr_schedule::shape::warmup_cosine:
      return "warmup-cosine";
  }
  return "unknown";
}

} // namespace waggle
