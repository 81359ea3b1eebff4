#pragma once

#include <array>
#include <cstddef>

// Eight bits per value in blocks of 4096, each with its largest magnitude a: the code is the entry
// of a fixed codebook that is nearest to x/a (after bitsandbytes' dynamic map). Small values keep
// their relative precision over seven decades; the error is at most 0.00704·a. Layout: a of each
// block (float32), then n codes. A block with a value that is not finite is written as a = NaN with
// codes 0 and is decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t block_values = 4096;

/// The 256 entries, ascending: for i = 0 … 6 the centres of 2^i equal cells of [0.1, 1], times
/// 10^(i−6), with both signs; 0; and 1 (not −1).
const std::array<float, 256>& blockwise_codebook();

} // namespace waggle::codecs
