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

// Half-precision distances to the mean in units of the deviation ("MEANSTD"; a part is
// one row): m = mean, s = max(√(Σ(x−m)²/n), 2⁻²³), q = half((x−m)/s), decoded as m + s·q. Layout:
// m, s (float32), then n halves. A part with a value that is not finite is written as m = NaN, s =
// 0, q = 0, and all its values are decoded as NaN.
namespace waggle::codecs {

namespace {

struct half_scale {
  float mean = 0;
  float deviation = 0; // 0: the part is NaN
};
static_assert(sizeof(half_scale) == 8);

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

constexpr std::size_t scaled_half_size(std::size_t n) {
  return sizeof(half_scale) + 2 * n;
}

void to_scaled_halves(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto* halves = bytes + sizeof(half_scale);
  half_scale header{nan, 0};
  auto sum = lane_sum(values, n);
  if (!std::isfinite(sum)) {
    std::memcpy(bytes, &header, sizeof header);
    std::memset(halves, 0, 2 * n);
    return;
  }
  header.mean = static_cast<float>(sum / static_cast<double>(n));
  auto squares = lane_sum_of_squares(values, n, header.mean);
  auto deviation = std::min<double>(std::sqrt(squares / static_cast<double>(n)), float_max);
  header.deviation = std::max(static_cast<float>(deviation), deviation_min);
  std::memcpy(bytes, &header, sizeof header);
  auto inverse = 1.0 / static_cast<double>(header.deviation);
  std::array<float, block> scaled;
  for (std::size_t i = 0; i < n; i += block) {
    auto count = std::min(block, n - i);
    scale(path, values + i, count, header.mean, inverse, scaled.data());
    to_halves(path, scaled.data(), count, halves + 2 * i);
  }
}

half_scale scale_of(const std::byte* bytes) {
  half_scale header;
  std::memcpy(&header, bytes, sizeof header);
  return header;
}

status check_scale(const std::byte* bytes, std::size_t /*n*/) {
  auto [mean, deviation] = scale_of(bytes);
  bool poisoned = std::bit_cast<std::uint32_t>(mean) == std::bit_cast<std::uint32_t>(nan)
                  && std::bit_cast<std::uint32_t>(deviation) == 0;
  bool sound =
    std::isfinite(mean) && deviation >= deviation_min && deviation <= float_max; // false for NaN
  if (!poisoned && !sound)
    return failure{ec::malformed, "mean or deviation of a scaled part is not valid"};
  return done{};
}

/// The results are finite for all finite halves.
void from_scaled_halves(instructions path, const std::byte* bytes, std::size_t /*n*/,
                        std::size_t begin, std::size_t count, float* values) {
  auto [mean, deviation] = scale_of(bytes);
  if (deviation == 0) {
    std::fill_n(values, count, nan);
    return;
  }
  const auto* halves = bytes + sizeof(half_scale) + 2 * begin;
  for (std::size_t i = 0; i < count; i += block) {
    auto some = std::min(block, count - i);
    from_halves(path, halves + 2 * i, some, values + i);
    unscale(path, values + i, some, mean, deviation);
  }
}

} // namespace

constexpr codec_row scaled_float16{
  codec_id::scaled_float16, "scaled_float16", "",          16,
  scaled_half_size,         to_scaled_halves, check_scale, from_scaled_halves};

} // namespace waggle::codecs
