#include "trainer/fused_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace waggle {

namespace {

/// left · right + kept, rounded once. The product of two floats is exact as a double. What the sum
/// loses as a double makes its last bit odd, so that no float is in the middle by mistake when it
/// is rounded again (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums",
/// 2008).
float fused(float left, float right, float kept) {
#if defined(__FP_FAST_FMAF)
  return std::fma(left, right, kept);
#else
  auto product = static_cast<double>(left) * static_cast<double>(right);
  auto addend = static_cast<double>(kept);
  auto sum = product + addend;
  auto part = sum - product;
  auto lost = (product - (sum - part)) + (addend - part);
  if (lost > 0 || lost < 0) { // not NaN
    auto bits = std::bit_cast<std::uint64_t>(sum);
    sum = std::bit_cast<double>((bits - ((lost > 0) != (sum > 0) ? 1 : 0)) | 1U);
  }
  return static_cast<float>(sum);
#endif
}

template <bool Product>
void compute_values(const fused_sum& of, std::int64_t begin, std::int64_t end) {
  for (auto i = begin; i < end; ++i)
    of.out[i] =
      fused(Product ? of.by * of.a[i] : of.a[i], Product ? of.b[i] : of.by, of.keep * of.sums[i]);
}

#if defined(__x86_64__)
// The same with vector instructions. Both return how many values they have computed.

/// Rounds twice, which can only differ if the double ends in the middle between two floats, or the
/// float is so small that it has fewer bits.
template <bool Product>
std::int64_t compute_sse2(const fused_sum& of, std::int64_t count) {
  constexpr std::int64_t width = 4;
  constexpr std::uint32_t middle = std::uint32_t{1} << 28U; // of the 29 bits that a float lacks
  const bool adds = !Product && of.by == 1;                 // sums that often end there
  const auto by = _mm_set1_ps(of.by);
  const auto keep = _mm_set1_ps(of.keep);
  const auto sign = _mm_set1_ps(-0.0F);
  auto high = [](__m128 x) { return _mm_movehl_ps(x, x); };
  auto two_sums = [](__m128 left, __m128 right, __m128 kept) {
    return _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(left), _mm_cvtps_pd(right)), _mm_cvtps_pd(kept));
  };
  std::int64_t at = 0;
  for (; at + width <= count; at += width) {
    auto a = _mm_loadu_ps(of.a + at);
    auto left = Product ? _mm_mul_ps(by, a) : a;
    auto right = Product ? _mm_loadu_ps(of.b + at) : by;
    auto kept = _mm_mul_ps(keep, _mm_loadu_ps(of.sums + at));
    if (adds) {
      _mm_storeu_ps(of.out + at, _mm_add_ps(kept, a));
      continue;
    }
    auto first = two_sums(left, right, kept);
    auto second = two_sums(high(left), high(right), high(kept));
    auto sums = _mm_movelh_ps(_mm_cvtpd_ps(first), _mm_cvtpd_ps(second));
    auto low = _mm_castps_si128(
      _mm_shuffle_ps(_mm_castpd_ps(first), _mm_castpd_ps(second), _MM_SHUFFLE(2, 0, 2, 0)));
    auto in_middle =
      _mm_cmpeq_epi32(_mm_and_si128(low, _mm_set1_epi32(2 * middle - 1)), _mm_set1_epi32(middle));
    auto is_small =
      _mm_cmplt_ps(_mm_andnot_ps(sign, sums), _mm_set1_ps(2 * std::numeric_limits<float>::min()));
    if (_mm_movemask_ps(_mm_or_ps(_mm_castsi128_ps(in_middle), is_small)) == 0)
      _mm_storeu_ps(of.out + at, sums);
    else
      compute_values<Product>(of, at, at + width);
  }
  return at;
}

template <bool Product>
__attribute__((target("avx2,fma"))) std::int64_t compute_fma(const fused_sum& of,
                                                             std::int64_t count) {
  constexpr std::int64_t width = 8;
  const auto by = _mm256_set1_ps(of.by);
  const auto keep = _mm256_set1_ps(of.keep);
  std::int64_t at = 0;
  for (; at + width <= count; at += width) {
    auto a = _mm256_loadu_ps(of.a + at);
    auto left = Product ? _mm256_mul_ps(by, a) : a;
    auto right = Product ? _mm256_loadu_ps(of.b + at) : by;
    auto kept = _mm256_mul_ps(keep, _mm256_loadu_ps(of.sums + at));
    _mm256_storeu_ps(of.out + at, _mm256_fmadd_ps(left, right, kept));
  }
  return at;
}
#endif

template <bool Product>
void compute_all(const fused_sum& of, std::int64_t count, [[maybe_unused]] fused_path path) {
  std::int64_t done = 0;
#if defined(__x86_64__)
  done =
    path == fused_path::fma ? compute_fma<Product>(of, count) : compute_sse2<Product>(of, count);
#endif
  compute_values<Product>(of, done, count);
}

} // namespace

fused_path best_fused_path() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return fused_path::fma;
#endif
  return fused_path::portable;
}

void fused_sum::compute(std::int64_t count, fused_path path) const {
  b != nullptr ? compute_all<true>(*this, count, path) : compute_all<false>(*this, count, path);
}

} // namespace waggle
