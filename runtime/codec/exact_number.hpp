#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>

namespace waggle {

/// A float64 as three float32 values, whose sum it is exactly: in vectors of float32 that a round
/// must not round. The smallest numbers, below 2⁻¹⁴⁹, become 0, and those that no float32 reaches
/// the largest one. A number may be missing.
constexpr std::size_t exact_values = 3;
constexpr float missing_number = std::numeric_limits<float>::max();

inline void write_exact(std::optional<double> number, std::span<float, exact_values> out) {
  // One step below the largest, which says that there is none.
  constexpr auto largest = static_cast<double>(missing_number) * 0.999999;
  auto rest = std::clamp(number.value_or(0), -largest, largest);
  auto piece = [&rest] {
    auto next = static_cast<float>(rest);
    rest -= static_cast<double>(next);
    return next;
  };
  // Each value is written once: GCC 12 loses the second of two stores that it vectorizes.
  out[0] = number ? piece() : missing_number;
  out[1] = piece();
  out[2] = piece();
}

inline std::optional<double> read_exact(std::span<const float, exact_values> from) {
  if (from[0] == missing_number)
    return std::nullopt;
  return static_cast<double>(from[0]) + static_cast<double>(from[1]) + static_cast<double>(from[2]);
}

} // namespace waggle
