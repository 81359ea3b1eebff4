#pragma once

#include <array>

#include "runtime/codec/instructions.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

// Eight bits per value in blocks of 4096, each with its largest magnitude a: the code is the entry
// of a fixed codebook that is nearest to x/a (after bitsandbytes' dynamic map). Small values keep
// their relative precision over seven decades; the error is at most 0.00704·a. Layout: a of each
// block (float32), then n codes. A block with a value that is not finite is written as a = NaN with
// codes 0 and is decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t block_values = 4096;

constexpr std::size_t blocks_of(std::size_t n) {
  return n / block_values + (n % block_values == 0 ? 0 : 1);
}
constexpr std::size_t blockwise8_size(std::size_t n) {
  return 4 * blocks_of(n) + n;
}

/// The 256 entries, ascending: for i = 0 … 6 the centres of 2^i equal cells of [0.1, 1], times
/// 10^(i−6), with both signs; 0; and 1 (not −1).
const std::array<float, 256>& blockwise_codebook();

/// REQUIRES: n > 0; `bytes` holds blockwise8_size(n).
void to_blockwise8(instructions path, const float* values, std::size_t n, std::byte* bytes);

/// Checks the maxima of all blocks: finite and not negative, or the NaN that the encoder writes.
/// Otherwise fails with ec::malformed.
status check_block_maxima(const std::byte* bytes, std::size_t n);

/// Reads the values [begin, begin + count) of a part of n. REQUIRES: check_block_maxima succeeded.
void from_blockwise8(const std::byte* bytes, std::size_t n, std::size_t begin, std::size_t count,
                     float* values);

} // namespace waggle::codecs
