#pragma once

#include <cstddef>

// Four bits per value in blocks of 256, each with its largest magnitude a: a sign, and the nearest
// of 0, a/64, a/32, … a (E3M0 of Streaming DiLoCo, arXiv 2501.18512). Layout: a of each block
// (float32), then n codes, the first of two in the lower half of a byte: 8 is negative, and k = 1 …
// 7 is a·2^(k−7). A block with a value that is not finite is written as a = NaN with codes 0 and is
// decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t e3m0_block = 256;

} // namespace waggle::codecs
