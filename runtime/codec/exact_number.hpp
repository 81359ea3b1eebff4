#pragma once

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
/// One step below the largest, which says that there is none.
constexpr double exact_largest = static_cast<double>(missing_number) * 0.999999;

/// `n` numbers, of which none is missing.
void write_exact(const double* numbers, std::size_t n, float* out);
/// A missing one is read as 0. Returns how many are NaN or infinite.
std::size_t read_exact(const float* from, std::size_t n, double* out);

inline void write_exact(std::optional<double> number, std::span<float, exact_values> out) {
  auto known = number.value_or(0);
  write_exact(&known, 1, out.data());
  if (!number)
    out[0] = missing_number;
}

inline std::optional<double> read_exact(std::span<const float, exact_values> from) {
  if (from[0] == missing_number)
    return std::nullopt;
  return static_cast<double>(from[0]) + static_cast<double>(from[1]) + static_cast<double>(from[2]);
}

} // namespace waggle
