#include "runtime/codec/exact_number.hpp"

#include <cmath>

#include "runtime/core/vectorized.hpp"

namespace waggle {

WAGGLE_VECTORIZED
std::size_t read_exact(const float* from, std::size_t n, double* out) {
  std::size_t not_finite = 0;
  for (std::size_t i = 0; i < n; ++i) {
    auto first = from[exact_values * i];
    auto number = static_cast<double>(first) + static_cast<double>(from[exact_values * i + 1])
                  + static_cast<double>(from[exact_values * i + 2]);
    not_finite += static_cast<std::size_t>(
      !(std::fabs(number) <= std::numeric_limits<double>::max())); // as is NaN
    out[i] = first == missing_number ? 0 : number;
  }
  return not_finite;
}

WAGGLE_VECTORIZED
void write_exact(const double* numbers, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    auto rest = numbers[i] < -exact_largest ? -exact_largest : numbers[i];
    rest = rest > exact_largest ? exact_largest : rest;
    auto first = static_cast<float>(rest);
    rest -= static_cast<double>(first);
    auto second = static_cast<float>(rest);
    rest -= static_cast<double>(second);
    out[exact_values * i] = first;
    out[exact_values * i + 1] = second;
    out[exact_values * i + 2] = static_cast<float>(rest);
  }
}

} // namespace waggle
