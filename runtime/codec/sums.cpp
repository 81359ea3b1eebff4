#include "runtime/codec/sums.hpp"

#include <array>

#include "runtime/core/vectorized.hpp"

namespace waggle::codecs {

namespace {

constexpr std::size_t lanes = 16;

/// Inlined, so that it is compiled for the instructions of its caller.
template <class Term>
[[gnu::always_inline]] inline double lane_fold(std::size_t n, Term term) {
  std::array<double, lanes> sums{};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      sums[lane] += term(i + lane);
  for (; i < n; ++i)
    sums[i % lanes] += term(i);
  for (std::size_t width = lanes / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane)
      sums[lane] += sums[lane + width];
  return sums[0];
}

double square(double x) {
  return x * x;
}

} // namespace

WAGGLE_VECTORIZED
double lane_sum(const float* values, std::size_t n) {
  return lane_fold(n, [=](std::size_t i) { return static_cast<double>(values[i]); });
}

WAGGLE_VECTORIZED
double lane_sum_of_squares(const float* values, std::size_t n, double mean) {
  return lane_fold(n, [=](std::size_t i) { return square(static_cast<double>(values[i]) - mean); });
}

WAGGLE_VECTORIZED
double lane_sum_of_squared_distances(const float* a, const float* b, std::size_t n) {
  return lane_fold(n, [=](std::size_t i) {
    return square(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  });
}

} // namespace waggle::codecs
