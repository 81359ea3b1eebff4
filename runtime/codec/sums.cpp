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

// All calls begin at a multiple of 16.
void add_portable(lane_array& sums, const float* values, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    sums[i % lanes] += static_cast<double>(values[i]);
}

void add_squares_portable(lane_array& sums, const float* values, std::size_t n, double mean) {
  for (std::size_t i = 0; i < n; ++i) {
    auto distance = static_cast<double>(values[i]) - mean;
    sums[i % lanes] += distance * distance;
  }
}

void add_distances_portable(lane_array& sums, const float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    auto distance = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sums[i % lanes] += distance * distance;
  }
}

#if defined(__x86_64__)

WAGGLE_AVX2 inline __m256d widen(const float* four) {
  return _mm256_cvtps_pd(_mm_loadu_ps(four));
}

WAGGLE_AVX2 std::size_t add_avx2(lane_array& sums, const float* values, std::size_t n) {
  auto a = _mm256_setzero_pd();
  auto b = a;
  auto c = a;
  auto d = a;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    a = _mm256_add_pd(a, widen(values + i));
    b = _mm256_add_pd(b, widen(values + i + 4));
    c = _mm256_add_pd(c, widen(values + i + 8));
    d = _mm256_add_pd(d, widen(values + i + 12));
  }
  _mm256_storeu_pd(sums.data(), a);
  _mm256_storeu_pd(sums.data() + 4, b);
  _mm256_storeu_pd(sums.data() + 8, c);
  _mm256_storeu_pd(sums.data() + 12, d);
  return i;
}

WAGGLE_AVX2 inline __m256d square(__m256d x) {
  return _mm256_mul_pd(x, x);
}

WAGGLE_AVX2 std::size_t add_squares_avx2(lane_array& sums, const float* values, std::size_t n,
                                         double mean) {
  const auto m = _mm256_set1_pd(mean);
  auto a = _mm256_setzero_pd();
  auto b = a;
  auto c = a;
  auto d = a;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    a = _mm256_add_pd(a, square(_mm256_sub_pd(widen(values + i), m)));
    b = _mm256_add_pd(b, square(_mm256_sub_pd(widen(values + i + 4), m)));
    c = _mm256_add_pd(c, square(_mm256_sub_pd(widen(values + i + 8), m)));
    d = _mm256_add_pd(d, square(_mm256_sub_pd(widen(values + i + 12), m)));
  }
  _mm256_storeu_pd(sums.data(), a);
  _mm256_storeu_pd(sums.data() + 4, b);
  _mm256_storeu_pd(sums.data() + 8, c);
  _mm256_storeu_pd(sums.data() + 12, d);
  return i;
}

WAGGLE_AVX2 std::size_t add_distances_avx2(lane_array& sums, const float* x, const float* y,
                                           std::size_t n) {
  auto a = _mm256_setzero_pd();
  auto b = a;
  auto c = a;
  auto d = a;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    a = _mm256_add_pd(a, square(_mm256_sub_pd(widen(x + i), widen(y + i))));
    b = _mm256_add_pd(b, square(_mm256_sub_pd(widen(x + i + 4), widen(y + i + 4))));
    c = _mm256_add_pd(c, square(_mm256_sub_pd(widen(x + i + 8), widen(y + i + 8))));
    d = _mm256_add_pd(d, square(_mm256_sub_pd(widen(x + i + 12), widen(y + i + 12))));
  }
  _mm256_storeu_pd(sums.data(), a);
  _mm256_storeu_pd(sums.data() + 4, b);
  _mm256_storeu_pd(sums.data() + 8, c);
  _mm256_storeu_pd(sums.data() + 12, d);
  return i;
}

#endif

} // namespace

double lane_sum([[maybe_unused]] instructions path, const float* values, std::size_t n) {
  lane_array sums{};
  std::size_t done = 0;
#if defined(__x86_64__)
  if (path == instructions::avx2)
    done = add_avx2(sums, values, n);
#endif
  add_portable(sums, values + done, n - done);
  return fold(sums);
}

double lane_sum_of_squares([[maybe_unused]] instructions path, const float* values, std::size_t n,
                           double mean) {
  lane_array sums{};
  std::size_t done = 0;
#if defined(__x86_64__)
  if (path == instructions::avx2)
    done = add_squares_avx2(sums, values, n, mean);
#endif
  add_squares_portable(sums, values + done, n - done, mean);
  return fold(sums);
}

double lane_sum_of_squared_distances([[maybe_unused]] instructions path, const float* a,
                                     const float* b, std::size_t n) {
  lane_array sums{};
  std::size_t done = 0;
#if defined(__x86_64__)
  if (path == instructions::avx2)
    done = add_distances_avx2(sums, a, b, n);
#endif
  add_distances_portable(sums, a + done, b + done, n - done);
  return fold(sums);
}

} // namespace waggle::codecs
