#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/codec/blocks.hpp"
#include "runtime/codec/codec_table.hpp"
#include "runtime/codec/sums.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Eight bits per value and a codebook of 256 floats. A code stands for the mean of the values that
// were assigned to it (0 if there are none), so that the sum of a part is preserved. Layout: 256
// float32, then n codes. A part with a value that is not finite is written with a codebook of NaN,
// and all its values are decoded as NaN.
namespace waggle::codecs {

namespace {

constexpr std::size_t table_entries = 256;
constexpr std::size_t table_bytes = 4 * table_entries;
constexpr std::size_t quantile_samples = 1U << 14U;

void write_poisoned(std::byte* bytes, std::size_t n) {
  for (std::size_t i = 0; i < table_entries; ++i)
    std::memcpy(bytes + 4 * i, &nan_bits, 4);
  std::memset(bytes + table_bytes, 0, n);
}

// -- codebook -------------------------------------------------------------------------------------

/// Writes the mean of the values of each code. Value i is added to table i mod 4, then ((0 + 1) +
/// (2 + 3)): this order is part of the format, and gives four independent chains of additions.
void write_means(const float* values, const std::byte* codes, std::size_t n, std::byte* codebook) {
  struct alignas(16) cell {
    double sum = 0;
    double count = 0;
  };
  std::array<std::array<cell, table_entries>, 4> tables{};
  auto add = [&](std::size_t table, std::size_t i) {
    auto& into = tables[table][static_cast<std::size_t>(codes[i])];
    into.sum += static_cast<double>(values[i]);
    into.count += 1.0;
  };
  auto rest = n % 4;
  for (std::size_t i = 0; i < n - rest; i += 4)
    for (std::size_t table = 0; table < 4; ++table)
      add(table, i + table);
  for (std::size_t table = 0; table < rest; ++table)
    add(table, n - rest + table);
  for (std::size_t k = 0; k < table_entries; ++k) {
    auto sum = (tables[0][k].sum + tables[1][k].sum) + (tables[2][k].sum + tables[3][k].sum);
    auto count =
      (tables[0][k].count + tables[1][k].count) + (tables[2][k].count + tables[3][k].count);
    auto mean = count == 0 ? 0.0F : static_cast<float>(sum / count);
    std::memcpy(codebook + 4 * k, &mean, 4);
  }
}

// -- uniform --------------------------------------------------------------------------------------

void uniform_codes_portable(const float* values, std::size_t n, double mean, double inverse,
                            std::byte* codes) {
  // Adding 1.5·2⁵² leaves the integer nearest to a small double, ties to even, in its low bits.
  constexpr double rounder = 6755399441055744.0;
  for (std::size_t i = 0; i < n; ++i) {
    auto steps = (static_cast<double>(values[i]) - mean) * inverse;
    steps = std::min(std::max(steps, -128.0), 127.0);
    codes[i] =
      static_cast<std::byte>((std::bit_cast<std::uint64_t>(steps + rounder) + 128U) & 0xffU);
  }
}

#if defined(__x86_64__)

WAGGLE_AVX2 inline __m128i uniform_steps(const float* four, __m256d mean, __m256d inverse) {
  auto x = _mm256_cvtps_pd(_mm_loadu_ps(four));
  auto steps = _mm256_mul_pd(_mm256_sub_pd(x, mean), inverse);
  steps = _mm256_min_pd(_mm256_max_pd(steps, _mm256_set1_pd(-128.0)), _mm256_set1_pd(127.0));
  return _mm256_cvtpd_epi32(steps);
}

WAGGLE_AVX2 std::size_t uniform_codes_avx2(const float* values, std::size_t n, double mean,
                                           double inverse, std::byte* codes) {
  const auto m = _mm256_set1_pd(mean);
  const auto s = _mm256_set1_pd(inverse);
  const auto middle = _mm_set1_epi16(128);
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto low =
      _mm_packs_epi32(uniform_steps(values + i, m, s), uniform_steps(values + i + 4, m, s));
    auto high =
      _mm_packs_epi32(uniform_steps(values + i + 8, m, s), uniform_steps(values + i + 12, m, s));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                     _mm_packus_epi16(_mm_add_epi16(low, middle), _mm_add_epi16(high, middle)));
  }
  return i;
}

#endif

// -- quantile -------------------------------------------------------------------------------------

/// 255 borders in ascending order and an infinite one: 16 rows of 16.
using border_array = std::array<float, table_entries>;

/// Integer keys with the same order as the floats.
std::uint32_t key_of(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
float float_of(std::uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

using key_array = std::array<std::uint32_t, quantile_samples>;

/// Sorts ascending, 11 bits per pass. The result is in `sorted`; `keys` is overwritten.
void radix_sort(key_array& keys, key_array& sorted, std::size_t count) {
  constexpr std::size_t digits = 1U << 11U;
  std::array<std::array<std::uint32_t, digits>, 3> places{};
  for (std::size_t i = 0; i < count; ++i) {
    ++places[0][keys[i] % digits];
    ++places[1][(keys[i] >> 11U) % digits];
    ++places[2][keys[i] >> 22U];
  }
  auto* from = &keys;
  auto* to = &sorted;
  for (unsigned pass = 0; pass < 3; ++pass) {
    std::uint32_t next = 0;
    for (auto& place : places[pass])
      next += std::exchange(place, next);
    for (std::size_t i = 0; i < count; ++i) {
      auto key = (*from)[i];
      (*to)[places[pass][(key >> (11U * pass)) % digits]++] = key;
    }
    std::swap(from, to);
  }
}

std::uint64_t hash_of(std::uint64_t x) { // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

border_array find_borders(const float* values, std::size_t n) {
  auto count = std::min(n, quantile_samples);
  key_array sample;
  key_array keys;
  if (n <= quantile_samples) {
    std::transform(values, values + n, sample.begin(), key_of);
  } else {
    for (std::size_t i = 0; i < quantile_samples; ++i) {
      auto begin = i * n / quantile_samples;
      auto length = (i + 1) * n / quantile_samples - begin;
      auto within = ((hash_of(i) >> 32U) * length) >> 32U; // a part has less than 2³² values
      sample[i] = key_of(values[begin + within]);
    }
  }
  radix_sort(sample, keys, count);
  border_array borders{};
  for (std::size_t k = 1; k < table_entries; ++k) {
    // The value at position k/256·(count − 1), interpolated linearly between its two neighbours.
    auto position = k * (count - 1);
    auto below = static_cast<double>(float_of(keys[position / table_entries]));
    auto above =
      static_cast<double>(float_of(keys[std::min(position / table_entries + 1, count - 1)]));
    auto fraction = static_cast<double>(position % table_entries) / table_entries;
    borders[k - 1] = static_cast<float>(below + (above - below) * fraction);
  }
  borders.back() = std::numeric_limits<float>::infinity();
  return borders;
}

/// How many borders lie strictly below each value.
void quantile_codes_portable(const float* values, std::size_t n, const border_array& borders,
                             std::byte* codes) {
  for (std::size_t i = 0; i < n; ++i) {
    const auto* at = borders.data();
    for (std::size_t half = table_entries / 2; half > 0; half /= 2)
      at += half * static_cast<std::size_t>(at[half - 1] < values[i]); // no branch to mispredict
    codes[i] = static_cast<std::byte>(at - borders.data());
  }
}

#if defined(__x86_64__)

/// Twice the number of those of 16 floats that lie below `x`.
WAGGLE_AVX2 inline unsigned twice_below(__m256 first, __m256 second, __m256 x) {
  auto a = _mm256_castps_si256(_mm256_cmp_ps(first, x, _CMP_LT_OQ));
  auto b = _mm256_castps_si256(_mm256_cmp_ps(second, x, _CMP_LT_OQ));
  auto two_bytes_each = static_cast<unsigned>(_mm256_movemask_epi8(_mm256_packs_epi32(a, b)));
  return static_cast<unsigned>(_mm_popcnt_u32(two_bytes_each));
}

WAGGLE_AVX2 std::size_t quantile_codes_avx2(const float* values, std::size_t n,
                                            const border_array& borders, std::byte* codes) {
  // The last borders of each row of 16 select the row; the same search within the row then ignores
  // its last border, which is not below the value.
  std::array<float, 16> rows{};
  for (std::size_t r = 0; r < 16; ++r)
    rows[r] = borders[16 * r + 15];
  const auto rows_low = _mm256_loadu_ps(rows.data());
  const auto rows_high = _mm256_loadu_ps(rows.data() + 8);
  for (std::size_t i = 0; i < n; ++i) {
    auto x = _mm256_broadcast_ss(values + i);
    auto begin = 8 * twice_below(rows_low, rows_high, x);
    const auto* row = borders.data() + begin;
    codes[i] = static_cast<std::byte>(
      begin + twice_below(_mm256_loadu_ps(row), _mm256_loadu_ps(row + 8), x) / 2);
  }
  return n;
}

#endif

/// Cells of equal width 6σ/256 around the mean, code clamp(round((x − mean)/width) + 128, 0, 255),
/// ties to even. The two outer cells contain everything beyond ±3σ.
void to_uniform8(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto* codes = bytes + table_bytes;
  auto sum = lane_sum(values, n);
  if (!std::isfinite(sum))
    return write_poisoned(bytes, n);
  auto mean = sum / static_cast<double>(n);
  auto squares = lane_sum_of_squares(values, n, mean);
  if (n == 1 || squares == 0) {
    // All values are equal, or so close that their distances vanish: one cell, whose mean is exact.
    std::memset(codes, 128, n);
  } else {
    auto deviation = std::sqrt(squares / static_cast<double>(n - 1));
    auto inverse = static_cast<double>(table_entries) / (6 * deviation);
    auto done = WAGGLE_IF_AVX2(path, uniform_codes_avx2(values, n, mean, inverse, codes));
    uniform_codes_portable(values + done, n - done, mean, inverse, codes + done);
  }
  write_means(values, codes, n, bytes);
}

/// Cells between the quantiles 1/256 … 255/256. If there are more than `quantile_samples` values,
/// the quantiles are estimated from one value of each of that many equal ranges; a hash of the
/// range's number selects the value, so that the sample does not alias with a period of the data. A
/// value on a border goes to the cell below it.
void to_quantile8(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto* codes = bytes + table_bytes;
  if (!std::isfinite(lane_sum(values, n)))
    return write_poisoned(bytes, n);
  auto borders = find_borders(values, n);
  auto done = WAGGLE_IF_AVX2(path, quantile_codes_avx2(values, n, borders, codes));
  quantile_codes_portable(values + done, n - done, borders, codes + done);
  write_means(values, codes, n, bytes);
}

/// The codebook is all finite, or all the NaN that the encoders write.
status check_codebook(const std::byte* codebook, std::size_t /*n*/) {
  std::size_t finite = 0;
  std::size_t poisoned = 0;
  for (std::size_t i = 0; i < table_entries; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, codebook + 4 * i, 4);
    finite += static_cast<std::size_t>((bits & 0x7f800000U) != 0x7f800000U);
    poisoned += static_cast<std::size_t>(bits == nan_bits);
  }
  if (finite != table_entries && poisoned != table_entries)
    return failure{ec::malformed, "a codebook has entries that are not finite"};
  return done{};
}

void read_codes(instructions /*path*/, const std::byte* codebook, std::size_t /*n*/,
                std::size_t begin, std::size_t count, float* values) {
  const auto* codes = codebook + table_bytes + begin;
  std::array<float, table_entries> table;
  std::memcpy(table.data(), codebook, table_bytes);
  // One load per value; gathering eight with AVX2 was slower.
  for (std::size_t i = 0; i < count; ++i)
    values[i] = table[static_cast<std::size_t>(codes[i])];
}

constexpr std::size_t table8_size(std::size_t n) {
  return table_bytes + n;
}

} // namespace

constexpr codec_row uniform8{codec_id::uniform8, "uniform8",     "",        8, table8_size,
                             to_uniform8,        check_codebook, read_codes};

constexpr codec_row quantile8{codec_id::quantile8, "quantile8",    "",        8, table8_size,
                              to_quantile8,        check_codebook, read_codes};

} // namespace waggle::codecs
