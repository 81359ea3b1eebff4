#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/codec/instructions.hpp"

// The inner loops of part_reducer, over a block of n values of each contributor. All arithmetic is
// in double precision, adds the rows in order, and uses no fused operations: both paths and every
// machine produce the same bits. Tests compare the paths.
namespace waggle::kernels {

/// One row per contributor: `rows[i]` points to n values.
using row_span = std::span<const float* const>;

/// out = (Σ weights[i]·rows[i])·factor. Returns the largest magnitude in `out` as the bits of a
/// float: 0x7f800000 or more means that a value is not finite. REQUIRES: at least one row.
/// @param odd for a result that will be rounded to 16 bits (codecs::to_odd).
std::uint32_t weighted_sum(instructions path, row_span rows, const double* weights, double factor,
                           float* out, std::size_t n, bool odd = false);

/// out = for each value the weighted median of the rows, or the middle between the two values where
/// the weights below and above are equal. REQUIRES: shares are > 0 and sum to at most 2^29.
void median(instructions path, row_span rows, const std::int32_t* shares, float* out,
            std::size_t n);

/// out = for each value the weighted mean of the rows without its `trim` smallest and `trim`
/// largest; among equal values the one of the lower row is the smaller. REQUIRES: 2·trim < rows.
void trimmed_mean(instructions path, row_span rows, const double* weights, std::size_t trim,
                  float* out, std::size_t n);

/// centre += Σ factors[i]·(rows[i] − centre).
void pull(instructions path, row_span rows, const double* factors, float* centre, std::size_t n);

} // namespace waggle::kernels
