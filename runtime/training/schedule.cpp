#include "runtime/training/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

using form = named_number::form;
using part = schedule_part;

constexpr double many = 0x1p40; // no run has more epochs

// -- numbers --------------------------------------------------------------------------------------

constexpr named_number floor_rate{"floor", form::real, 0, 1e6, 0.0};
constexpr named_number warmup{"warmup", form::whole, 0, many, {}};

constexpr named_number of_step[] = {{"every", form::whole, 1, many, {}},
                                    {"factor", form::real, 0, 1, 0.1}};
constexpr named_number of_multi_step[] = {{"factor", form::real, 0, 1, 0.1},
                                          {"at", form::list, 0, many, {}}};
constexpr named_number of_exponential[] = {{"factor", form::real, 0, 1, {}}};
constexpr named_number of_linear[] = {{"from", form::real, 0, 1, 1.0 / 3},
                                      {"to", form::real, 0, 1, 1.0}};
constexpr named_number of_cosine[] = {floor_rate};
constexpr named_number of_restarts[] = {
  {"first", form::whole, 1, many, {}}, {"growth", form::whole, 1, 1e6, 1.0}, floor_rate};
constexpr named_number of_polynomial[] = {{"power", form::real, 0, 1e3, 1.0}, floor_rate};
constexpr named_number of_one_cycle[] = {{"rise", form::real, 0, 1, 0.3},
                                         {"start-divisor", form::real, 1, 1e9, 25.0},
                                         {"end-divisor", form::real, 1, 1e9, 1e4}};
constexpr named_number of_warmup[] = {warmup};
constexpr named_number of_inverse_sqrt[] = {{"warmup", form::whole, 1, many, {}}};
constexpr named_number of_wsd[] = {warmup, {"decay", form::whole, 1, many, {}}, floor_rate};
constexpr named_number of_plateau[] = {
  {"factor", form::real, 0, 1, 0.1},
  {"patience", form::whole, 0, static_cast<double>(plateau::count_max), 10.0},
  {"threshold", form::real, 0, 1e6, 1e-4},
  {"absolute", form::whole, 0, 1, 0.0},
  {"cooldown", form::whole, 0, static_cast<double>(plateau::count_max), 0.0},
  floor_rate,
  {"eps", form::real, 0, 1e6, 1e-8}};

// -- rates ----------------------------------------------------------------------------------------

double number(std::uint64_t n) {
  return static_cast<double>(n);
}

std::uint64_t whole(double x) {
  return static_cast<std::uint64_t>(x);
}

/// From `from` to `to` on half a cosine. `way`: from 0 to 1.
double half_cosine(double from, double to, double way) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * way));
}

/// The part of the length that has passed.
double way_of(const part& p, std::uint64_t e) {
  return std::min(number(e) / number(*p.epochs), 1.0);
}

/// From 0 at the first epoch to the peak at epoch `p["warmup"]`. REQUIRES: e is before it.
double rising(const part& p, double peak, std::uint64_t e) {
  return peak * number(e) / p["warmup"];
}

double always_peak(const part& /*p*/, double peak, std::uint64_t /*e*/) {
  return peak;
}

double warmup_cosine(const part& p, double peak, std::uint64_t e) {
  return half_cosine(peak, 0, way_of(p, e));
}

double step(const part& p, double peak, std::uint64_t e) {
  return peak * std::pow(p["factor"], number(e / whole(p["every"])));
}

double multi_step(const part& p, double peak, std::uint64_t e) {
  auto passed = std::count_if(p.numbers.begin() + 1, p.numbers.end(),
                              [&](double milestone) { return whole(milestone) <= e; });
  return peak * std::pow(p["factor"], static_cast<double>(passed));
}

double exponential(const part& p, double peak, std::uint64_t e) {
  return peak * std::pow(p["factor"], number(e));
}

double linear(const part& p, double peak, std::uint64_t e) {
  auto way = way_of(p, e);
  return peak * (p["from"] * (1 - way) + p["to"] * way);
}

double cosine(const part& p, double peak, std::uint64_t e) {
  return half_cosine(peak, p["floor"], way_of(p, e));
}

double cosine_restarts(const part& p, double peak, std::uint64_t e) {
  auto cycle = p["first"];
  auto growth = p["growth"];
  auto at = number(e);
  if (growth == 1)
    at = std::fmod(at, cycle);
  for (; at >= cycle; cycle *= growth) // at most 64 times: it doubles at least
    at -= cycle;
  return half_cosine(peak, p["floor"], at / cycle);
}

double polynomial(const part& p, double peak, std::uint64_t e) {
  return p["floor"] + (peak - p["floor"]) * std::pow(1 - way_of(p, e), p["power"]);
}

/// Rises to the peak in epoch rise · length - 1, and falls until the last epoch of its length.
double one_cycle(const part& p, double peak, std::uint64_t e) {
  auto last = number(*p.epochs) - 1;
  auto top = p["rise"] * number(*p.epochs) - 1;
  auto start = peak / p["start-divisor"];
  auto now = std::min(number(e), last);
  if (now <= top)
    return half_cosine(start, peak, top > 0 ? now / top : 1);
  return half_cosine(peak, start / p["end-divisor"], (now - top) / (last - top));
}

double warmup_linear(const part& p, double peak, std::uint64_t e) {
  if (number(e) < p["warmup"])
    return rising(p, peak, e);
  auto fall = std::max(1.0, number(*p.epochs) - p["warmup"]);
  return peak * std::max(0.0, (number(*p.epochs) - number(e)) / fall);
}

double warmup_constant(const part& p, double peak, std::uint64_t e) {
  return number(e) < p["warmup"] ? rising(p, peak, e) : peak;
}

double inverse_sqrt(const part& p, double peak, std::uint64_t e) {
  return number(e) < p["warmup"] ? rising(p, peak, e) : peak * std::sqrt(p["warmup"] / number(e));
}

double warmup_stable_decay(const part& p, double peak, std::uint64_t e) {
  if (number(e) < p["warmup"])
    return rising(p, peak, e);
  auto falling = number(e) - (number(*p.epochs) - p["decay"]); // since so many epochs
  return half_cosine(peak, p["floor"], std::clamp(falling / p["decay"], 0.0, 1.0));
}

constexpr schedule_row table[] = {
  {"constant", "the peak", {}, false, always_peak},
  {"warmup-cosine", "cosine down to 0, for use with --warmup-epochs", {}, true, warmup_cosine},
  {"step", "times factor every so many epochs", of_step, false, step},
  {"multi-step", "times factor at each of these epochs", of_multi_step, false, multi_step},
  {"exponential", "times factor in each epoch", of_exponential, false, exponential},
  {"linear", "in a straight line between two multiples of the peak", of_linear, true, linear},
  {"cosine", "half a cosine down to the rate floor", of_cosine, true, cosine},
  {"cosine-restarts", "cosines, the first so long, each growth times as long as the one before",
   of_restarts, false, cosine_restarts},
  {"polynomial", "down to floor with a power of the way that is left", of_polynomial, true,
   polynomial},
  {"one-cycle", "up from peak / start-divisor in the part rise of its length, then down",
   of_one_cycle, true, one_cycle},
  {"warmup-linear", "up from 0, then down to 0, in straight lines", of_warmup, true, warmup_linear},
  {"warmup-constant", "up from 0, then the peak", of_warmup, false, warmup_constant},
  {"inverse-sqrt", "up from 0, then falling as the root of warmup / epoch", of_inverse_sqrt, false,
   inverse_sqrt},
  {"wsd", "up from 0, the peak, in the last decay epochs a cosine to floor", of_wsd, true,
   warmup_stable_decay},
  {plateau_name,
   "the peak, times factor when the loss of the swarm has not fallen for patience epochs (only "
   "with "
   "--strategy collaborative)",
   of_plateau, false, always_peak},
};

double rate_of(const part& p, double peak, std::uint64_t e) {
  return p.row->ends && p.epochs.value_or(0) == 0 ? peak : p.row->rate(p, peak, e);
}

} // namespace

std::span<const schedule_row> schedule_table() {
  return table;
}

double schedule_part::operator[](std::string_view name) const {
  for (std::size_t i = 0; i < row->numbers.size(); ++i)
    if (row->numbers[i].name == name)
      return numbers.at(i);
  WAGGLE_CHECK(false, std::string{row->name} + " has no number " + std::string{name});
  return 0;
}

double lr_schedule::at(epoch_id epoch) const {
  auto e = epoch.value();
  if (e < warmup_epochs)
    return peak * number(e + 1) / number(warmup_epochs);
  e -= warmup_epochs;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i + 1 == parts.size() || e < parts[i].epochs.value_or(0))
      return rate_of(parts[i], peak, e);
    e -= parts[i].epochs.value_or(0);
  }
  return peak;
}

double lr_schedule::within(epoch_id epoch, double share) const {
  auto steady = [&] {
    auto e = epoch.value();
    if (e < warmup_epochs)
      return true;
    e -= warmup_epochs;
    for (const auto& part : parts) {
      auto length = part.epochs.value_or(0);
      if (e < length)
        return part.row->ends && e + 1 < length;
      e -= length;
    }
    return false;
  };
  auto now = at(epoch);
  return steady() ? now + std::clamp(share, 0.0, 1.0) * (at(epoch.next()) - now) : now;
}

std::optional<plateau_rule> lr_schedule::plateau() const {
  if (parts.empty() || parts.back().row->name != plateau_name)
    return std::nullopt;
  const auto& p = parts.back();
  plateau_rule rule{.peak = peak,
                    .factor = p["factor"],
                    .patience = whole(p["patience"]),
                    .threshold = p["threshold"],
                    .absolute = p["absolute"] != 0,
                    .cooldown = whole(p["cooldown"]),
                    .floor = p["floor"],
                    .least_change = p["eps"]};
  auto begins = warmup_epochs;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    begins += parts[i].epochs.value_or(0);
  rule.begins = epoch_id{begins};
  return rule;
}

} // namespace waggle
