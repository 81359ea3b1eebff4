#include "runtime/codec/e3m0.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "runtime/codec/codec_table.hpp"
#include "runtime/core/vectorized.hpp"

namespace waggle::codecs {

namespace {

constexpr std::uint32_t nan_bits = 0x7fc00000U;
constexpr std::uint32_t infinity_bits = 0x7f800000U;
constexpr std::size_t magnitudes = 7; // beside 0
constexpr unsigned negative = 8;

constexpr std::size_t blocks_of(std::size_t n) {
  return n / e3m0_block + (n % e3m0_block == 0 ? 0 : 1);
}
constexpr std::size_t e3m0_size(std::size_t n) {
  return 4 * blocks_of(n) + n / 2 + n % 2;
}

WAGGLE_VECTORIZED
std::uint32_t largest_magnitude(const float* values, std::size_t n) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
  return largest;
}

/// A magnitude above above[k] is nearer to the entry k + 1 than to k.
using borders = std::array<float, magnitudes>;

borders borders_of(float largest) {
  borders above;
  auto entry = largest;
  for (std::size_t k = magnitudes - 1; k > 0; --k, entry /= 2)
    above[k] = entry * 0.75F;
  above[0] = entry / 2;
  return above;
}

WAGGLE_VECTORIZED
void write_codes(const float* values, std::size_t n, const borders& above, std::byte* codes) {
  std::array<std::uint32_t, e3m0_block> each{};
  for (std::size_t i = 0; i < n; ++i) {
    auto bits = std::bit_cast<std::uint32_t>(values[i]);
    auto magnitude = std::bit_cast<float>(bits & 0x7fffffffU);
    std::uint32_t code = 0;
    for (auto border : above)
      code += static_cast<std::uint32_t>(magnitude > border);
    each[i] = code | (code > 0 ? bits >> 31U << 3U : 0U);
  }
  for (std::size_t i = 0; i < n; i += 2)
    codes[i / 2] = static_cast<std::byte>(each[i] | each[i + 1] << 4U);
}

void to_e3m0(instructions /*path*/, const float* values, std::size_t n, std::byte* bytes) {
  auto* codes = bytes + 4 * blocks_of(n);
  for (std::size_t block = 0; block < blocks_of(n); ++block) {
    auto begin = block * e3m0_block;
    auto count = std::min(e3m0_block, n - begin);
    auto largest = largest_magnitude(values + begin, count);
    bool finite = largest < infinity_bits;
    std::memcpy(bytes + 4 * block, finite ? &largest : &nan_bits, 4);
    if (finite)
      write_codes(values + begin, count, borders_of(std::bit_cast<float>(largest)),
                  codes + begin / 2);
    else
      std::memset(codes + begin / 2, 0, count / 2 + count % 2);
  }
}

/// The largest magnitudes are finite and not negative, or the NaN that the encoder writes.
status check_largest(const std::byte* bytes, std::size_t n) {
  for (std::size_t block = 0; block < blocks_of(n); ++block) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes + 4 * block, 4);
    if (bits >= infinity_bits && bits != nan_bits) // negative values have larger bits still
      return failure{ec::malformed, "the largest magnitude of block " + std::to_string(block)
                                      + " is negative or not finite"};
  }
  return done{};
}

void read_codes(instructions /*path*/, const std::byte* bytes, std::size_t n, std::size_t begin,
                std::size_t count, float* values) {
  const auto* codes = bytes + 4 * blocks_of(n);
  std::array<float, 16> decoded;
  for (auto end = begin + count; begin < end;) {
    auto block = begin / e3m0_block;
    auto until = std::min(end, (block + 1) * e3m0_block);
    float entry = 0;
    std::memcpy(&entry, bytes + 4 * block, 4);
    decoded[0] = decoded[negative] = entry * 0; // NaN stays NaN
    for (auto k = magnitudes; k > 0; --k, entry /= 2) {
      decoded[k] = entry;
      decoded[negative | k] = -entry;
    }
    for (; begin < until; ++begin)
      *values++ = decoded[static_cast<unsigned>(codes[begin / 2]) >> (begin % 2 * 4) & 15U];
  }
}

} // namespace

constexpr codec_row e3m0{codec_id::e3m0, "e3m0",  "four bits",   4.125,
                         e3m0_size,      to_e3m0, check_largest, read_codes};

} // namespace waggle::codecs
