#include "runtime/averaging/kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/codec/half.hpp"

namespace waggle::kernels {

namespace {

constexpr std::uint32_t magnitude_bits = 0x7fffffffU;

double widen(float x) {
  return static_cast<double>(x);
}

// -- portable versions: values [begin, n) ---------------------------------------------------------

std::uint32_t weighted_sum_portable(row_span rows, const double* weights, double factor, float* out,
                                    std::size_t begin, std::size_t n, bool odd) {
  std::uint32_t top = 0;
  for (std::size_t e = begin; e < n; ++e) {
    auto sum = weights[0] * widen(rows[0][e]);
    for (std::size_t i = 1; i < rows.size(); ++i)
      sum += weights[i] * widen(rows[i][e]);
    out[e] = odd ? codecs::to_odd(sum * factor) : static_cast<float>(sum * factor);
    top = std::max(top, std::bit_cast<std::uint32_t>(out[e]) & magnitude_bits);
  }
  return top;
}

/// True if value `e` of row j comes before that of row i.
bool before(row_span rows, std::size_t j, std::size_t i, std::size_t e) {
  return rows[j][e] < rows[i][e] || (j < i && rows[j][e] == rows[i][e]);
}

void median_portable(row_span rows, const std::int32_t* shares, std::int32_t total, float* out,
                     std::size_t begin, std::size_t n) {
  for (std::size_t e = begin; e < n; ++e) {
    float low = 0;
    float high = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::int32_t below = 0;
      for (std::size_t j = 0; j < rows.size(); ++j)
        below += before(rows, j, i, e) ? shares[j] : 0;
      auto through = below + shares[i];
      if (2 * below < total && 2 * through >= total)
        low = rows[i][e];
      if (2 * below <= total && 2 * through > total)
        high = rows[i][e];
    }
    out[e] = static_cast<float>((widen(low) + widen(high)) * 0.5);
  }
}

void trimmed_mean_portable(row_span rows, const double* weights, std::size_t trim, float* out,
                           std::size_t begin, std::size_t n) {
  for (std::size_t e = begin; e < n; ++e) {
    double sum = 0;
    double weight = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::size_t rank = 0;
      for (std::size_t j = 0; j < rows.size(); ++j)
        rank += before(rows, j, i, e) ? 1U : 0U;
      if (rank < trim || rank >= rows.size() - trim)
        continue;
      sum += weights[i] * widen(rows[i][e]);
      weight += weights[i];
    }
    out[e] = static_cast<float>(sum / weight);
  }
}

void pull_portable(row_span rows, const double* factors, float* centre, std::size_t begin,
                   std::size_t n) {
  for (std::size_t e = begin; e < n; ++e) {
    auto from = widen(centre[e]);
    double move = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      move += factors[i] * (widen(rows[i][e]) - from);
    centre[e] = static_cast<float>(from + move);
  }
}

// -- AVX2 versions: values [0, as many as fill registers), whose number they return ---------------

#if defined(__x86_64__)

WAGGLE_AVX2 inline __m256d load_wide(const float* four) {
  return _mm256_cvtps_pd(_mm_loadu_ps(four));
}

WAGGLE_AVX2 inline __m256d widen_low(__m256 x) {
  return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}

WAGGLE_AVX2 inline __m256d widen_high(__m256 x) {
  return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}

WAGGLE_AVX2 inline __m256 narrow(__m256d low, __m256d high) {
  return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}

/// codecs::to_odd.
WAGGLE_AVX2 inline __m128 narrow_to_odd(__m256d x) {
  const auto magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(0x7fffffffffffffff));
  auto nearest = _mm256_cvtpd_ps(x);
  auto back = _mm256_cvtps_pd(nearest);
  auto low_halves = [](__m256d mask) WAGGLE_AVX2 {
    auto order = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(_mm256_castpd_si256(mask), order));
  };
  auto differs = low_halves(_mm256_cmp_pd(back, x, _CMP_NEQ_UQ));
  auto below = low_halves(
    _mm256_cmp_pd(_mm256_and_pd(back, magnitude), _mm256_and_pd(x, magnitude), _CMP_LT_OQ));
  auto bits = _mm_castps_si128(nearest);
  const auto one = _mm_set1_epi32(1);
  auto even = _mm_cmpeq_epi32(_mm_and_si128(bits, one), _mm_setzero_si128());
  auto step = _mm_or_si128(_mm_xor_si128(below, _mm_set1_epi32(-1)), one); // below: 1, else −1
  return _mm_castsi128_ps(_mm_add_epi32(bits, _mm_and_si128(step, _mm_and_si128(even, differs))));
}

// The processor cannot prefetch more streams than this at a time (64 at once ran at half the
// speed). With more rows, the sums of a block stay in the first-level cache between groups of rows.
constexpr std::size_t rows_at_once = 16;
constexpr std::size_t carried_max = 1024;

struct sixteen_sums {
  __m256d a, b, c, d;
};

WAGGLE_AVX2 inline void load_scaled(sixteen_sums& sums, const double* weight, const float* x) {
  auto w = _mm256_broadcast_sd(weight);
  sums.a = _mm256_mul_pd(w, load_wide(x));
  sums.b = _mm256_mul_pd(w, load_wide(x + 4));
  sums.c = _mm256_mul_pd(w, load_wide(x + 8));
  sums.d = _mm256_mul_pd(w, load_wide(x + 12));
}

WAGGLE_AVX2 inline void add_scaled(sixteen_sums& sums, const double* weight, const float* x) {
  auto w = _mm256_broadcast_sd(weight);
  sums.a = _mm256_add_pd(sums.a, _mm256_mul_pd(w, load_wide(x)));
  sums.b = _mm256_add_pd(sums.b, _mm256_mul_pd(w, load_wide(x + 4)));
  sums.c = _mm256_add_pd(sums.c, _mm256_mul_pd(w, load_wide(x + 8)));
  sums.d = _mm256_add_pd(sums.d, _mm256_mul_pd(w, load_wide(x + 12)));
}

/// The sums over `rows` at e, added to `carried` if it is not null. They stay in registers: each
/// value is read once and written once.
WAGGLE_AVX2 inline void sum_up(sixteen_sums& sums, row_span rows, const double* weights,
                               std::size_t e, const double* carried) {
  if (carried == nullptr)
    load_scaled(sums, weights, rows[0] + e);
  else
    sums = {_mm256_loadu_pd(carried), _mm256_loadu_pd(carried + 4), _mm256_loadu_pd(carried + 8),
            _mm256_loadu_pd(carried + 12)};
  for (std::size_t i = carried == nullptr ? 1 : 0; i < rows.size(); ++i)
    add_scaled(sums, weights + i, rows[i] + e);
}

WAGGLE_AVX2 std::size_t weighted_sum_avx2(row_span rows, const double* weights, double factor,
                                          float* out, std::size_t n, bool odd, std::uint32_t& top) {
  const auto magnitude = _mm256_set1_epi32(static_cast<int>(magnitude_bits));
  const auto scale = _mm256_set1_pd(factor);
  auto most = _mm256_setzero_si256();
  std::array<double, carried_max> carried;
  const auto end = n - n % 16;
  for (std::size_t begin = 0; begin < end; begin += carried_max) {
    auto stop = std::min(end, begin + carried_max);
    sixteen_sums sums;
    std::size_t first = 0;
    for (; rows.size() - first > rows_at_once; first += rows_at_once)
      for (auto e = begin; e < stop; e += 16) {
        auto* at = carried.data() + (e - begin);
        sum_up(sums, rows.subspan(first, rows_at_once), weights + first, e,
               first == 0 ? nullptr : at);
        _mm256_storeu_pd(at, sums.a);
        _mm256_storeu_pd(at + 4, sums.b);
        _mm256_storeu_pd(at + 8, sums.c);
        _mm256_storeu_pd(at + 12, sums.d);
      }
    for (auto e = begin; e < stop; e += 16) {
      sum_up(sums, rows.subspan(first), weights + first, e,
             first == 0 ? nullptr : carried.data() + (e - begin));
      sums = {_mm256_mul_pd(sums.a, scale), _mm256_mul_pd(sums.b, scale),
              _mm256_mul_pd(sums.c, scale), _mm256_mul_pd(sums.d, scale)};
      auto low = odd ? _mm256_set_m128(narrow_to_odd(sums.b), narrow_to_odd(sums.a))
                     : narrow(sums.a, sums.b);
      auto high = odd ? _mm256_set_m128(narrow_to_odd(sums.d), narrow_to_odd(sums.c))
                      : narrow(sums.c, sums.d);
      _mm256_storeu_ps(out + e, low);
      _mm256_storeu_ps(out + e + 8, high);
      most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(low), magnitude));
      most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(high), magnitude));
    }
  }
  std::array<std::uint32_t, 8> most_of;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(most_of.data()), most);
  top = *std::max_element(most_of.begin(), most_of.end());
  return end;
}

WAGGLE_AVX2 std::size_t median_avx2(row_span rows, const std::int32_t* shares, std::int32_t total,
                                    float* out, std::size_t n) {
  const auto half = _mm256_set1_epi32(total);
  const auto middle = _mm256_set1_pd(0.5);
  std::size_t e = 0;
  for (; e + 8 <= n; e += 8) {
    auto low = _mm256_setzero_ps();
    auto high = low;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto x = _mm256_loadu_ps(rows[i] + e);
      auto below = _mm256_setzero_si256();
      for (std::size_t j = 0; j < i; ++j) {
        auto is_before = _mm256_cmp_ps(_mm256_loadu_ps(rows[j] + e), x, _CMP_LE_OQ);
        below = _mm256_add_epi32(
          below, _mm256_and_si256(_mm256_castps_si256(is_before), _mm256_set1_epi32(shares[j])));
      }
      for (std::size_t j = i + 1; j < rows.size(); ++j) {
        auto is_before = _mm256_cmp_ps(_mm256_loadu_ps(rows[j] + e), x, _CMP_LT_OQ);
        below = _mm256_add_epi32(
          below, _mm256_and_si256(_mm256_castps_si256(is_before), _mm256_set1_epi32(shares[j])));
      }
      // Twice the sums, so that an odd total has an exact half.
      auto through = _mm256_slli_epi32(_mm256_add_epi32(below, _mm256_set1_epi32(shares[i])), 1);
      below = _mm256_slli_epi32(below, 1);
      auto is_low =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(half, through), _mm256_cmpgt_epi32(half, below));
      auto is_high =
        _mm256_andnot_si256(_mm256_cmpgt_epi32(below, half), _mm256_cmpgt_epi32(through, half));
      low = _mm256_blendv_ps(low, x, _mm256_castsi256_ps(is_low));
      high = _mm256_blendv_ps(high, x, _mm256_castsi256_ps(is_high));
    }
    auto a = _mm256_mul_pd(_mm256_add_pd(widen_low(low), widen_low(high)), middle);
    auto b = _mm256_mul_pd(_mm256_add_pd(widen_high(low), widen_high(high)), middle);
    _mm256_storeu_ps(out + e, narrow(a, b));
  }
  return e;
}

WAGGLE_AVX2 std::size_t trimmed_mean_avx2(row_span rows, const double* weights, std::size_t trim,
                                          float* out, std::size_t n) {
  const auto first_kept = _mm256_set1_epi32(static_cast<int>(trim));
  const auto end_kept = _mm256_set1_epi32(static_cast<int>(rows.size() - trim));
  std::size_t e = 0;
  for (; e + 8 <= n; e += 8) {
    auto sum_a = _mm256_setzero_pd();
    auto sum_b = sum_a;
    auto weight_a = sum_a;
    auto weight_b = sum_a;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto x = _mm256_loadu_ps(rows[i] + e);
      auto rank = _mm256_setzero_si256();
      // A comparison is −1 where it holds.
      for (std::size_t j = 0; j < i; ++j)
        rank = _mm256_sub_epi32(
          rank, _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(rows[j] + e), x, _CMP_LE_OQ)));
      for (std::size_t j = i + 1; j < rows.size(); ++j)
        rank = _mm256_sub_epi32(
          rank, _mm256_castps_si256(_mm256_cmp_ps(_mm256_loadu_ps(rows[j] + e), x, _CMP_LT_OQ)));
      auto kept = _mm256_andnot_si256(_mm256_cmpgt_epi32(first_kept, rank),
                                      _mm256_cmpgt_epi32(end_kept, rank));
      auto kept_a = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(kept)));
      auto kept_b = _mm256_castsi256_pd(_mm256_cvtepi32_epi64(_mm256_extracti128_si256(kept, 1)));
      auto weight = _mm256_broadcast_sd(weights + i);
      sum_a = _mm256_add_pd(sum_a, _mm256_and_pd(kept_a, _mm256_mul_pd(weight, widen_low(x))));
      sum_b = _mm256_add_pd(sum_b, _mm256_and_pd(kept_b, _mm256_mul_pd(weight, widen_high(x))));
      weight_a = _mm256_add_pd(weight_a, _mm256_and_pd(kept_a, weight));
      weight_b = _mm256_add_pd(weight_b, _mm256_and_pd(kept_b, weight));
    }
    _mm256_storeu_ps(out + e,
                     narrow(_mm256_div_pd(sum_a, weight_a), _mm256_div_pd(sum_b, weight_b)));
  }
  return e;
}

WAGGLE_AVX2 std::size_t pull_avx2(row_span rows, const double* factors, float* centre,
                                  std::size_t n) {
  std::size_t e = 0;
  for (; e + 8 <= n; e += 8) {
    auto from_a = load_wide(centre + e);
    auto from_b = load_wide(centre + e + 4);
    auto move_a = _mm256_setzero_pd();
    auto move_b = move_a;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto factor = _mm256_broadcast_sd(factors + i);
      const float* x = rows[i] + e;
      move_a = _mm256_add_pd(move_a, _mm256_mul_pd(factor, _mm256_sub_pd(load_wide(x), from_a)));
      move_b =
        _mm256_add_pd(move_b, _mm256_mul_pd(factor, _mm256_sub_pd(load_wide(x + 4), from_b)));
    }
    _mm256_storeu_ps(centre + e,
                     narrow(_mm256_add_pd(from_a, move_a), _mm256_add_pd(from_b, move_b)));
  }
  return e;
}

#endif

} // namespace

std::uint32_t weighted_sum(instructions path, row_span rows, const double* weights, double factor,
                           float* out, std::size_t n, bool odd) {
  std::uint32_t top = 0;
  auto done = WAGGLE_IF_AVX2(path, weighted_sum_avx2(rows, weights, factor, out, n, odd, top));
  return std::max(top, weighted_sum_portable(rows, weights, factor, out, done, n, odd));
}

void median(instructions path, row_span rows, const std::int32_t* shares, float* out,
            std::size_t n) {
  std::int32_t total = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    total += shares[i];
  auto done = WAGGLE_IF_AVX2(path, median_avx2(rows, shares, total, out, n));
  median_portable(rows, shares, total, out, done, n);
}

void trimmed_mean(instructions path, row_span rows, const double* weights, std::size_t trim,
                  float* out, std::size_t n) {
  auto done = WAGGLE_IF_AVX2(path, trimmed_mean_avx2(rows, weights, trim, out, n));
  trimmed_mean_portable(rows, weights, trim, out, done, n);
}

void pull(instructions path, row_span rows, const double* factors, float* centre, std::size_t n) {
  auto done = WAGGLE_IF_AVX2(path, pull_avx2(rows, factors, centre, n));
  pull_portable(rows, factors, centre, done, n);
}

} // namespace waggle::kernels
