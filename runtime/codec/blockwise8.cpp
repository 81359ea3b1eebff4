#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/codec/blocks.hpp"
#include "runtime/codec/codec_table.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Eight bits per value in blocks of 4096: the code is the entry of a fixed codebook that is nearest
// to x/a (after bitsandbytes' dynamic map). Small values keep their relative precision over seven
// decades; the error is at most 0.00704·a.
namespace waggle::codecs {

namespace {

constexpr std::size_t blockwise8_size(std::size_t n) {
  return 4 * blocks_of<block_values>(n) + n;
}

constexpr int zero_code = 127; // code 127 + k is the k-th magnitude, 127 − k its negative
constexpr std::array<double, 7> decade_top{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};

/// The centre of cell j of decade i.
constexpr double centre(std::size_t i, std::size_t j) {
  return decade_top[i]
         * (0.1 + 0.9 * (static_cast<double>(j) + 0.5) / static_cast<double>(1U << i));
}

/// Ascending: for i = 0 … 6 the centres of 2^i equal cells of [0.1, 1], times 10^(i−6), with both
/// signs; 0; and 1 (not −1).
constexpr std::array<float, 256> make_codebook() {
  std::array<float, 256> out{};
  std::size_t magnitude = 1;
  for (std::size_t i = 0; i < 7; ++i)
    for (std::size_t j = 0; j < (std::size_t{1} << i); ++j, ++magnitude) {
      out[zero_code + magnitude] = static_cast<float>(centre(i, j));
      out[zero_code - magnitude] = -static_cast<float>(centre(i, j));
    }
  out[255] = 1.0F;
  return out;
}
constexpr auto codebook = make_codebook();

// The nearest entry is computed without a search: within a decade the cells are equal, so that the
// cell of y is the integer part of y·slope − start. Level 0 is the entry 0, level d is decade d −
// 1, which has 2^(d−1) cells and whose first magnitude has the number 2^(d−1).
struct level_table {
  std::array<float, 8> above{}; // a magnitude above above[k] belongs to a level above k
  std::array<float, 8> slope{};
  std::array<float, 8> start{};
  std::array<float, 8> cells{};
};
constexpr level_table make_levels() {
  level_table out;
  for (std::size_t d = 1; d <= 7; ++d) {
    auto cells = static_cast<double>(1U << (d - 1));
    out.slope[d] = static_cast<float>(cells / (0.9 * decade_top[d - 1]));
    out.start[d] = static_cast<float>(cells / 9);
    out.cells[d] = static_cast<float>(cells);
    auto last_below = d == 1 ? 0.0 : centre(d - 2, (std::size_t{1} << (d - 2)) - 1);
    out.above[d - 1] = static_cast<float>((last_below + centre(d - 1, 0)) / 2);
  }
  out.above[7] = static_cast<float>((centre(6, 63) + 1) / 2); // above it only the entry 1 is left
  return out;
}
constexpr auto levels = make_levels();

/// The code nearest to y. REQUIRES: |y| ≤ 1.
int code_of(float y) {
  auto magnitude = y < 0 ? -y : y;
  std::size_t level = 0;
  for (std::size_t k = 0; k < 7; ++k)
    level += static_cast<std::size_t>(magnitude > levels.above[k]);
  auto cells = static_cast<int>(levels.cells[level]);
  auto cell = static_cast<int>(magnitude * levels.slope[level] - levels.start[level]);
  cell = std::max(std::min(cell, cells - 1), 0);
  auto steps = cells + cell;
  if (y < 0)
    return zero_code - steps;
  return zero_code + steps + static_cast<int>(y > levels.above[7]);
}

void codes_portable(const float* values, std::size_t n, float scale, std::byte* codes) {
  for (std::size_t i = 0; i < n; ++i)
    codes[i] = static_cast<std::byte>(code_of(values[i] / scale));
}

#if defined(__x86_64__)

/// The codes of eight values, as integers.
WAGGLE_AVX2 inline __m256i codes_of_eight(const float* values, __m256 scale) {
  auto y = _mm256_div_ps(_mm256_loadu_ps(values), scale);
  auto magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), y);
  auto level = _mm256_setzero_si256();
  for (std::size_t k = 0; k < 7; ++k) // a comparison is −1 where it holds
    level = _mm256_sub_epi32(level, _mm256_castps_si256(_mm256_cmp_ps(
                                      magnitude, _mm256_set1_ps(levels.above[k]), _CMP_GT_OQ)));
  auto slope = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels.slope.data()), level);
  auto start = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels.start.data()), level);
  auto cells =
    _mm256_cvttps_epi32(_mm256_permutevar8x32_ps(_mm256_loadu_ps(levels.cells.data()), level));
  auto cell = _mm256_cvttps_epi32(_mm256_sub_ps(_mm256_mul_ps(magnitude, slope), start));
  cell = _mm256_min_epi32(cell, _mm256_sub_epi32(cells, _mm256_set1_epi32(1)));
  cell = _mm256_max_epi32(cell, _mm256_setzero_si256());
  auto steps = _mm256_add_epi32(cells, cell);
  auto top = _mm256_cmp_ps(y, _mm256_set1_ps(levels.above[7]), _CMP_GT_OQ);
  steps = _mm256_sub_epi32(steps, _mm256_castps_si256(top));
  // (steps ^ −1) + 1 = −steps where y is negative.
  auto negative = _mm256_castps_si256(_mm256_cmp_ps(y, _mm256_setzero_ps(), _CMP_LT_OQ));
  steps = _mm256_sub_epi32(_mm256_xor_si256(steps, negative), negative);
  return _mm256_add_epi32(steps, _mm256_set1_epi32(zero_code));
}

WAGGLE_AVX2 std::size_t codes_avx2(const float* values, std::size_t n, float scale,
                                   std::byte* codes) {
  const auto s = _mm256_set1_ps(scale);
  // The packing instructions work on halves of a register; this permutation restores the order.
  const auto order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    auto low =
      _mm256_packus_epi32(codes_of_eight(values + i, s), codes_of_eight(values + i + 8, s));
    auto high =
      _mm256_packus_epi32(codes_of_eight(values + i + 16, s), codes_of_eight(values + i + 24, s));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i),
                        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
  }
  return i;
}

#endif

void to_blockwise8(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto* codes = bytes + 4 * blocks_of<block_values>(n);
  std::memset(codes, 0, n);
  write_blocks<block_values>(values, n, bytes, [&](std::size_t begin, std::size_t count, float a) {
    auto scale = a == 0 ? 1 : a;
    auto done = WAGGLE_IF_AVX2(path, codes_avx2(values + begin, count, scale, codes + begin));
    codes_portable(values + begin + done, count - done, scale, codes + begin + done);
  });
}

void read_codes(instructions /*path*/, const std::byte* bytes, std::size_t n, std::size_t begin,
                std::size_t count, float* values) {
  const auto* codes = bytes + 4 * blocks_of<block_values>(n);
  std::array<float, 256> scaled;
  read_blocks<block_values>(bytes, begin, count, [&](std::size_t i, std::size_t end, float a) {
    for (std::size_t k = 0; k < codebook.size(); ++k)
      scaled[k] = codebook[k] * a;
    for (; i < end; ++i)
      *values++ = scaled[static_cast<std::size_t>(codes[i])];
  });
}

} // namespace

constexpr codec_row blockwise8{
  codec_id::blockwise8,       "blockwise8", "", 8, blockwise8_size, to_blockwise8,
  check_blocks<block_values>, read_codes};

} // namespace waggle::codecs
