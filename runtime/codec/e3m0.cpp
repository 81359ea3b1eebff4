#include <array>
#include <bit>
#include <cstring>

#include "runtime/codec/blocks.hpp"
#include "runtime/codec/codec_table.hpp"

// Four bits per value in blocks of 256: a sign, and the nearest of 0, a/64, a/32, … a (E3M0 of
// Streaming DiLoCo, arXiv 2501.18512). The first of two codes is in the lower half of a byte: 8 is
// negative, and k = 1 … 7 is a·2^(k−7).
namespace waggle::codecs {

namespace {

constexpr std::size_t magnitudes = 7; // beside 0
constexpr unsigned negative = 8;

constexpr std::size_t e3m0_size(std::size_t n) {
  return 4 * blocks_of<e3m0_block>(n) + n / 2 + n % 2;
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
  auto* codes = bytes + 4 * blocks_of<e3m0_block>(n);
  std::memset(codes, 0, n / 2 + n % 2);
  write_blocks<e3m0_block>(values, n, bytes, [&](std::size_t begin, std::size_t count, float a) {
    write_codes(values + begin, count, borders_of(a), codes + begin / 2);
  });
}

void read_codes(instructions /*path*/, const std::byte* bytes, std::size_t n, std::size_t begin,
                std::size_t count, float* values) {
  const auto* codes = bytes + 4 * blocks_of<e3m0_block>(n);
  std::array<float, 16> decoded;
  read_blocks<e3m0_block>(bytes, begin, count, [&](std::size_t i, std::size_t end, float entry) {
    decoded[0] = decoded[negative] = entry * 0; // NaN stays NaN
    for (auto k = magnitudes; k > 0; --k, entry /= 2) {
      decoded[k] = entry;
      decoded[negative | k] = -entry;
    }
    for (; i < end; ++i)
      *values++ = decoded[static_cast<unsigned>(codes[i / 2]) >> (i % 2 * 4) & 15U];
  });
}

} // namespace

constexpr codec_row e3m0{
  codec_id::e3m0,           "e3m0",    "four bits", 4.125, e3m0_size, to_e3m0,
  check_blocks<e3m0_block>, read_codes};

} // namespace waggle::codecs
