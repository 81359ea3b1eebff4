#include "runtime/training/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <string>

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"

namespace waggle {

namespace {

double always_peak(const lr_schedule& schedule, std::uint64_t /*k*/) {
  return schedule.peak;
}

double cosine(const lr_schedule& s, std::uint64_t k) {
  if (s.total_epochs <= s.warmup_epochs)
    return s.peak;
  auto span = static_cast<double>(s.total_epochs - s.warmup_epochs);
  auto way = std::min(static_cast<double>(k - s.warmup_epochs) / span, 1.0);
  return s.floor + (s.peak - s.floor) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

using shape = lr_schedule::shape;

constexpr schedule_row table[] = {
  {shape::constant, "constant", "", false, always_peak},
  {shape::warmup_cosine, "warmup-cosine", "which needs --epochs", true, cosine},
};

const schedule_row& row_with(shape kind) {
  auto index = static_cast<std::size_t>(kind);
  WAGGLE_CHECK(index < std::size(table) && table[index].id == kind, std::to_string(index));
  return table[index];
}

} // namespace

std::span<const schedule_row> schedule_table() {
  return table;
}

double lr_schedule::at(epoch_id epoch) const {
  auto k = epoch.value();
  if (k < warmup_epochs)
    return peak * static_cast<double>(k + 1) / static_cast<double>(warmup_epochs);
  return row_with(kind).after_warmup(*this, k);
}

result<lr_schedule::shape> parse_schedule(std::string_view name) {
  if (const auto* row = find_named(table, name))
    return row->id;
  return failure{ec::bad_config,
                 "'" + std::string{name} + "' is no schedule: use " + listed(schedule_table())};
}

std::string_view to_string(lr_schedule::shape kind) {
  return row_with(kind).name;
}

} // namespace waggle
