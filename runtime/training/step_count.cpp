#include "runtime/training/step_count.hpp"

#include <algorithm>
#include <cmath>

namespace waggle {

namespace {

constexpr unsigned piece_bits = 17;
constexpr std::uint64_t piece_mask = (std::uint64_t{1} << piece_bits) - 1;
/// Larger numbers of steps between two rounds are not exact any more.
constexpr double steps_max = 0x1p24;

/// @param high above this, a mean is none of such values.
double within(float mean, double high) {
  auto value = static_cast<double>(mean);
  return std::isfinite(value) ? std::clamp(value, 0.0, high) : 0;
}

} // namespace

void write_steps(std::span<float, step_values> out, std::uint64_t steps, std::uint64_t total) {
  out[0] = static_cast<float>(std::min(static_cast<double>(steps), steps_max));
  auto rest = std::min(total, counted_steps_max);
  for (std::size_t i = 1; i < step_values; ++i, rest >>= piece_bits)
    out[i] = static_cast<float>(rest & piece_mask);
}

std::int64_t change_of_steps(std::span<const float, step_values> means, double members,
                             const std::uint64_t* total) {
  auto count = std::isfinite(members) ? std::clamp(members, 0.0, 0x1p20) : 0;
  auto made = static_cast<std::int64_t>(std::round(within(means[0], steps_max) * count));
  if (total == nullptr)
    return made;
  double known = 0; // the mean of what the members knew
  for (std::size_t i = step_values; i-- > 1;)
    known = known * static_cast<double>(piece_mask + 1)
            + within(means[i], static_cast<double>(piece_mask));
  auto own = static_cast<std::int64_t>(std::min(*total, counted_steps_max));
  auto behind = static_cast<std::int64_t>(std::round(known)) - own;
  return made + std::min(behind, steps_ahead_max * std::max<std::int64_t>(made, 1));
}

} // namespace waggle
