#include "runtime/codec/sums.hpp"

#include <array>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace waggle::codecs {

namespace {

constexpr std::size_t lanes = 16;
using lane_array = std::array<double, lanes>;

double fold(lane_array& sums) {
  for (std::size_t width = lanes / 2; width > 0; width /= 2)
    for (std::size_t i = 0; i < width; ++i)
      sums[i] += sums[i + width];
  return sums[0];
}

/// Adds `term(i)` for all i from `begin`, a multiple of 16, on.
template <class Term>
void add_portable(lane_array& sums, std::size_t begin, std::size_t n, Term term) {
  for (std::size_t i = begin; i < n; ++i)
    sums[i % lanes] += term(i);
}

double square(double x) {
  return x * x;
}

#if defined(__x86_64__)

WAGGLE_AVX2 inline __m256d widen(const float* four) {
  return _mm256_cvtps_pd(_mm_loadu_ps(four));
}

WAGGLE_AVX2 inline __m256d square(__m256d x) {
  return _mm256_mul_pd(x, x);
}

/// The sums of the terms, of which `terms(i)` gives four from i on.
template <class Terms>
WAGGLE_AVX2 std::size_t add_avx2(lane_array& sums, std::size_t n, Terms terms) {
  auto a = _mm256_setzero_pd();
  auto b = a;
  auto c = a;
  auto d = a;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    a = _mm256_add_pd(a, terms(i));
    b = _mm256_add_pd(b, terms(i + 4));
    c = _mm256_add_pd(c, terms(i + 8));
    d = _mm256_add_pd(d, terms(i + 12));
  }
  _mm256_storeu_pd(sums.data(), a);
  _mm256_storeu_pd(sums.data() + 4, b);
  _mm256_storeu_pd(sums.data() + 8, c);
  _mm256_storeu_pd(sums.data() + 12, d);
  return i;
}

#endif

} // namespace

double lane_sum(instructions path, const float* values, std::size_t n) {
  lane_array sums{};
  auto done = WAGGLE_IF_AVX2(
    path, add_avx2(sums, n, [=](std::size_t i) WAGGLE_AVX2 { return widen(values + i); }));
  add_portable(sums, done, n, [=](std::size_t i) { return static_cast<double>(values[i]); });
  return fold(sums);
}

double lane_sum_of_squares(instructions path, const float* values, std::size_t n, double mean) {
  lane_array sums{};
  auto done =
    WAGGLE_IF_AVX2(path, add_avx2(sums, n, [=](std::size_t i) WAGGLE_AVX2 {
                     return square(_mm256_sub_pd(widen(values + i), _mm256_set1_pd(mean)));
                   }));
  add_portable(sums, done, n,
               [=](std::size_t i) { return square(static_cast<double>(values[i]) - mean); });
  return fold(sums);
}

double lane_sum_of_squared_distances(instructions path, const float* a, const float* b,
                                     std::size_t n) {
  lane_array sums{};
  auto done = WAGGLE_IF_AVX2(path, add_avx2(sums, n, [=](std::size_t i) WAGGLE_AVX2 {
                               return square(_mm256_sub_pd(widen(a + i), widen(b + i)));
                             }));
  add_portable(sums, done, n, [=](std::size_t i) {
    return square(static_cast<double>(a[i]) - static_cast<double>(b[i]));
  });
  return fold(sums);
}

} // namespace waggle::codecs
