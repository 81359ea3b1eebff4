#pragma once

#include <array>

#include "runtime/codec/instructions.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

// Eight bits per value and a codebook of 256 floats. A code stands for the mean of the values that
// were assigned to it (0 if there are none), so that the sum of a part is preserved. Layout: 256
// float32, then n codes. A part with a value that is not finite is written with a codebook of NaN,
// and all its values are decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t table_entries = 256;
constexpr std::size_t table_bytes = 4 * table_entries;

constexpr std::size_t table8_size(std::size_t n) {
  return table_bytes + n;
}

/// Cells of equal width 6σ/256 around the mean, code clamp(round((x − mean)/width) + 128, 0, 255),
/// ties to even. The two outer cells contain everything beyond ±3σ.
/// REQUIRES: n > 0; `bytes` holds table8_size(n).
void to_uniform8(instructions path, const float* values, std::size_t n, std::byte* bytes);

/// Cells between the quantiles 1/256 … 255/256. If there are more than `quantile_samples` values,
/// the quantiles are estimated from one value of each of that many equal ranges; a hash of the
/// range's number selects the value, so that the sample does not alias with a period of the data. A
/// value on a border goes to the cell below it.
/// REQUIRES: n > 0; `bytes` holds table8_size(n).
void to_quantile8(instructions path, const float* values, std::size_t n, std::byte* bytes);

constexpr std::size_t quantile_samples = 1U << 14U;

/// Checks the codebook: all finite, or all the NaN that the encoders write. Otherwise
/// ec::malformed.
status check_codebook(const std::byte* codebook);

/// codebook[code]; neither needs alignment.
void look_up(const std::byte* codebook, const std::byte* codes, std::size_t n, float* values);
/// codebook[code]·scale.
void look_up_scaled(const std::array<float, table_entries>& codebook, float scale,
                    const std::byte* codes, std::size_t n, float* values);

} // namespace waggle::codecs
