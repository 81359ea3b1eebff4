#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/core/result.hpp"
#include "runtime/core/vectorized.hpp"

// Codecs whose values are fractions of the largest magnitude a of a block of `Values` values.
// Layout: a of each block (float32), then the codes. A block with a value that is not finite is
// written as a = NaN with codes 0 and is decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t block_values = 4096; // of blockwise8
constexpr std::size_t e3m0_block = 256;

constexpr std::uint32_t nan_bits = 0x7fc00000U;
constexpr std::uint32_t infinity_bits = 0x7f800000U;

template <std::size_t Values>
constexpr std::size_t blocks_of(std::size_t n) {
  return n / Values + (n % Values == 0 ? 0 : 1);
}

WAGGLE_VECTORIZED
static inline std::uint32_t largest_magnitude(const float* values, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
  return largest;
}

/// Writes a of each block, and has `write(begin, count, a)` write the codes of those that are
/// finite. REQUIRES: the codes are 0.
template <std::size_t Values, class Write>
void write_blocks(const float* values, std::size_t n, std::byte* bytes, Write write) {
  for (std::size_t block = 0; block < blocks_of<Values>(n); ++block) {
    auto begin = block * Values;
    auto count = std::min(Values, n - begin);
    auto largest = largest_magnitude(values + begin, count);
    bool finite = largest < infinity_bits;
    std::memcpy(bytes + 4 * block, finite ? &largest : &nan_bits, 4);
    if (finite)
      write(begin, count, std::bit_cast<float>(largest));
  }
}

/// Each a is finite and not negative, or the NaN that the encoder writes.
template <std::size_t Values>
status check_blocks(const std::byte* bytes, std::size_t n) {
  for (std::size_t block = 0; block < blocks_of<Values>(n); ++block) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes + 4 * block, 4);
    if (bits >= infinity_bits && bits != nan_bits) // negative values have larger bits still
      return failure{ec::malformed, "the largest magnitude of block " + std::to_string(block)
                                      + " is negative or not finite"};
  }
  return done{};
}

/// Calls `read(begin, end, a)` for the part of each block that lies in [begin, begin + count).
template <std::size_t Values, class Read>
void read_blocks(const std::byte* bytes, std::size_t begin, std::size_t count, Read read) {
  for (auto end = begin + count; begin < end;) {
    auto block = begin / Values;
    auto until = std::min(end, (block + 1) * Values);
    float largest = 0;
    std::memcpy(&largest, bytes + 4 * block, 4);
    read(begin, until, largest);
    begin = until;
  }
}

} // namespace waggle::codecs
