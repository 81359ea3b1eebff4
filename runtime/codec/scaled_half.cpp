#include "runtime/codec/scaled_half.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/codec/codec_table.hpp"
#include "runtime/codec/half.hpp"
#include "runtime/codec/sums.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace waggle::codecs {

namespace {

constexpr float deviation_min = 0x1p-23F;
constexpr float float_max = std::numeric_limits<float>::max();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Small enough to stay in the first-level cache between the two steps.
constexpr std::size_t block = 1024;

/// (x − mean)·inverse, in doubles: neither the difference of two large floats nor the reciprocal of
/// a small one overflows there.
void scale_portable(const float* values, std::size_t n, double mean, double inverse, float* out) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>((static_cast<double>(values[i]) - mean) * inverse);
}

/// mean + deviation·q, clamped: the rounding of q may exceed the largest float.
void unscale_portable(float* values, std::size_t n, double mean, double deviation) {
  constexpr double top = float_max;
  for (std::size_t i = 0; i < n; ++i) {
    auto x = mean + deviation * static_cast<double>(values[i]);
    x = x > top ? top : (x < -top ? -top : x); // NaN is preserved
    values[i] = static_cast<float>(x);
  }
}

#if defined(__x86_64__)

WAGGLE_AVX2 std::size_t scale_avx2(const float* values, std::size_t n, double mean, double inverse,
                                   float* out) {
  const auto m = _mm256_set1_pd(mean);
  const auto s = _mm256_set1_pd(inverse);
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    auto x = _mm256_cvtps_pd(_mm_loadu_ps(values + i));
    _mm_storeu_ps(out + i, _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_sub_pd(x, m), s)));
  }
  return i;
}

WAGGLE_AVX2 std::size_t unscale_avx2(float* values, std::size_t n, double mean, double deviation) {
  const auto m = _mm256_set1_pd(mean);
  const auto s = _mm256_set1_pd(deviation);
  const auto top = _mm256_set1_pd(float_max);
  const auto bottom = _mm256_set1_pd(-static_cast<double>(float_max));
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    auto q = _mm256_cvtps_pd(_mm_loadu_ps(values + i));
    auto x = _mm256_add_pd(m, _mm256_mul_pd(s, q));
    // min and max return their second operand for NaN.
    x = _mm256_max_pd(bottom, _mm256_min_pd(top, x));
    _mm_storeu_ps(values + i, _mm256_cvtpd_ps(x));
  }
  return i;
}

#endif

void scale(instructions path, const float* values, std::size_t n, double mean, double inverse,
           float* out) {
  auto done = WAGGLE_IF_AVX2(path, scale_avx2(values, n, mean, inverse, out));
  scale_portable(values + done, n - done, mean, inverse, out + done);
}

void unscale(instructions path, float* values, std::size_t n, double mean, double deviation) {
  auto done = WAGGLE_IF_AVX2(path, unscale_avx2(values, n, mean, deviation));
  unscale_portable(values + done, n - done, mean, deviation);
}

void write_header(half_scale header, std::byte* bytes) {
  std::memcpy(bytes, &header.mean, 4);
  std::memcpy(bytes + 4, &header.deviation, 4);
}

} // namespace

void to_scaled_halves(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto sum = lane_sum(path, values, n);
  if (!std::isfinite(sum)) {
    write_header({nan, 0}, bytes);
    std::memset(bytes + 8, 0, 2 * n);
    return;
  }
  half_scale header;
  header.mean = static_cast<float>(sum / static_cast<double>(n));
  auto squares = lane_sum_of_squares(path, values, n, header.mean);
  auto deviation = std::min<double>(std::sqrt(squares / static_cast<double>(n)), float_max);
  header.deviation = std::max(static_cast<float>(deviation), deviation_min);
  write_header(header, bytes);
  auto inverse = 1.0 / static_cast<double>(header.deviation);
  std::array<float, block> scaled;
  for (std::size_t i = 0; i < n; i += block) {
    auto count = std::min(block, n - i);
    scale(path, values + i, count, header.mean, inverse, scaled.data());
    to_halves(path, scaled.data(), count, bytes + 8 + 2 * i);
  }
}

result<half_scale> read_half_scale(const std::byte* header) {
  half_scale out;
  std::memcpy(&out.mean, header, 4);
  std::memcpy(&out.deviation, header + 4, 4);
  bool poisoned = std::bit_cast<std::uint32_t>(out.mean) == std::bit_cast<std::uint32_t>(nan)
                  && std::bit_cast<std::uint32_t>(out.deviation) == 0;
  bool sound = std::isfinite(out.mean) && out.deviation >= deviation_min
               && out.deviation <= float_max; // false for NaN
  if (!poisoned && !sound)
    return failure{ec::malformed, "mean or deviation of a scaled part is not valid"};
  return out;
}

void from_scaled_halves(instructions path, half_scale scale, const std::byte* halves, std::size_t n,
                        float* values) {
  if (scale.deviation == 0) {
    std::fill_n(values, n, nan);
    return;
  }
  for (std::size_t i = 0; i < n; i += block) {
    auto count = std::min(block, n - i);
    from_halves(path, halves + 2 * i, count, values + i);
    unscale(path, values + i, count, scale.mean, scale.deviation);
  }
}

constexpr codec_row scaled_float16{codec_id::scaled_float16,
                                   "scaled_float16",
                                   "",
                                   2,
                                   scaled_half_size,
                                   to_scaled_halves,
                                   [](const std::byte* bytes, std::size_t) -> status {
                                     auto scale = read_half_scale(bytes);
                                     return scale ? status{done{}} : status{scale.error()};
                                   },
                                   [](instructions path, const std::byte* bytes, std::size_t,
                                      std::size_t begin, std::size_t count, float* values) {
                                     half_scale scale;
                                     std::memcpy(&scale.mean, bytes, 4);
                                     std::memcpy(&scale.deviation, bytes + 4, 4);
                                     from_scaled_halves(path, scale, bytes + 8 + 2 * begin, count,
                                                        values);
                                   }};

} // namespace waggle::codecs
