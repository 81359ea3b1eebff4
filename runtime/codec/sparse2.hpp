#pragma once

#include <cstddef>

#include "runtime/codec/codec_table.hpp"

// The 64 largest of each 4096 values (SparseLoCo, arXiv 2508.15706), two bits each: the sign, and
// which of two magnitudes is nearer. The two, low and high, are the means of the smaller and of the
// larger magnitudes, cut where the squared error is least. All others are decoded as 0. Among
// equal magnitudes the lower place is the larger. 120 bytes a chunk, 15/64 bits a value; the last
// chunk of a part is shorter, and keeps one of 64 values, rounded up.
//
// Layout of a chunk that keeps k values: low, high (float32); k ascending places of 12 bits each;
// k codes of two bits each, in the order of the places: 1 is negative, 2 is high. Places and codes
// begin at bit 0 of a byte; their last bytes are filled with zero bits. A chunk with a value that
// is not finite is written as two NaN and zeros, and is decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t kept_one_of = 64;
/// Of a chunk of n values.
constexpr std::size_t kept_of(std::size_t n) {
  return n / kept_one_of + (n % kept_one_of == 0 ? 0 : 1);
}
constexpr std::size_t sparse_chunk_bytes(std::size_t n) {
  return 8 + (12 * kept_of(n) + 7) / 8 + (2 * kept_of(n) + 7) / 8;
}
static_assert(sparse_chunk_bytes(sparse_chunk) == 120);

} // namespace waggle::codecs
