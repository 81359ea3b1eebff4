#pragma once

#include <cstddef>

// Sums for the codecs that scale by mean and deviation, and for the aggregators that measure
// distances. The order of summation is part of the format: value i goes to lane i mod 16, in double
// precision without fused operations, and the lanes are folded in halves (16 to 8 to 4 to 2 to 1).
// Every machine gets the same bits.
namespace waggle::codecs {

/// Σ x. Finite if and only if every value is: floats cannot overflow a double.
double lane_sum(const float* values, std::size_t n);

/// Σ (x − mean)².
double lane_sum_of_squares(const float* values, std::size_t n, double mean);

/// Σ (a − b)². Finite if and only if all values are.
double lane_sum_of_squared_distances(const float* a, const float* b, std::size_t n);

} // namespace waggle::codecs
