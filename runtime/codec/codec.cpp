#include "runtime/codec/codec.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "runtime/core/check.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace waggle {

static_assert(std::endian::native == std::endian::little,
              "parts travel as little-endian floats straight from memory");

namespace {

constexpr float half_max = 65504.0F;

float clamp_to_half(float x) {
  return x > half_max ? half_max : (x < -half_max ? -half_max : x);
}

std::uint16_t to_half(float value) {
  auto bits = std::bit_cast<std::uint32_t>(clamp_to_half(value));
  auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  auto magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) // NaN: quiet, keep the upper payload bits, as F16C does
    return static_cast<std::uint16_t>(sign | 0x7e00U | ((magnitude >> 13U) & 0x1ffU));
  if (magnitude < 0x38800000U) { // below 2^-14: subnormal or zero
    if (magnitude < 0x33000000U)
      return sign; // below 2^-25: rounds to zero
    auto exponent = magnitude >> 23U;
    auto mantissa = (magnitude & 0x7fffffU) | 0x800000U;
    auto shift = 126U - exponent;
    auto half = mantissa >> shift;
    auto rest = mantissa & ((1U << shift) - 1U);
    auto middle = 1U << (shift - 1U);
    if (rest > middle || (rest == middle && (half & 1U) != 0))
      ++half;
    return static_cast<std::uint16_t>(sign | half);
  }
  auto rounded = magnitude - 0x38000000U;
  auto half = rounded >> 13U;
  auto rest = rounded & 0x1fffU;
  if (rest > 0x1000U || (rest == 0x1000U && (half & 1U) != 0))
    ++half;
  return static_cast<std::uint16_t>(sign | half);
}

float from_half(std::uint16_t half) {
  auto sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  auto exponent = (half >> 10U) & 0x1fU;
  auto mantissa = static_cast<std::uint32_t>(half & 0x3ffU);
  if (exponent == 0x1fU) // infinity, NaN (made quiet, as F16C does)
    return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13U)
                                | (mantissa != 0 ? 0x400000U : 0U));
  if (exponent == 0) // zero, subnormal: mantissa · 2^-24, exact in float
    return std::bit_cast<float>(
      sign | std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24F));
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
}

void to_halves(const float* values, std::size_t n, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) {
    auto half = to_half(values[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void from_halves(const std::byte* bytes, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes + 2 * i, 2);
    out[i] = from_half(half);
  }
}

#if defined(__x86_64__)

bool has_f16c() {
  // clang 14 does not know the name "f16c"; "avx" includes that the operating system saves the
  // registers.
  static const bool yes = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0
           && (c & bit_F16C) != 0;
  }();
  return yes;
}

__attribute__((target("avx,f16c"))) void to_halves_f16c(const float* values, std::size_t n,
                                                        std::byte* out) {
  const auto top = _mm256_set1_ps(half_max);
  const auto bottom = _mm256_set1_ps(-half_max);
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    auto x = _mm256_loadu_ps(values + i);
    // min/max return their second operand for NaN: NaN goes through.
    x = _mm256_max_ps(bottom, _mm256_min_ps(top, x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  to_halves(values + i, n - i, out + 2 * i);
}

__attribute__((target("avx,f16c"))) void from_halves_f16c(const std::byte* bytes, std::size_t n,
                                                          float* out) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(
      out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i))));
  from_halves(bytes + 2 * i, n - i, out + i);
}

#endif

} // namespace

std::string_view to_string(codec_id codec) {
  switch (codec) {
    case codec_id::none:
      return "none";
    case codec_id::float16:
      return "float16";
  }
  return "unknown";
}

result<codec_id> parse_codec(std::string_view name) {
  for (auto codec : {codec_id::none, codec_id::float16})
    if (to_string(codec) == name)
      return codec;
  return failure{ec::bad_config, "'" + std::string{name} + "' is not a codec: none or float16"};
}

bool is_known(codec_id codec) {
  return codec == codec_id::none || codec == codec_id::float16;
}

std::size_t encoded_size(codec_id codec, std::size_t elements) {
  switch (codec) {
    case codec_id::none:
      return elements * 4;
    case codec_id::float16:
      return elements * 2;
  }
  return 0;
}

void encode(codec_id codec, std::span<const float> values, std::span<std::byte> out) {
  WAGGLE_CHECK(out.size() == encoded_size(codec, values.size()), std::to_string(out.size()));
  switch (codec) {
    case codec_id::none:
      if (!values.empty())
        std::memcpy(out.data(), values.data(), out.size());
      return;
    case codec_id::float16:
#if defined(__x86_64__)
      if (has_f16c())
        return to_halves_f16c(values.data(), values.size(), out.data());
#endif
      return to_halves(values.data(), values.size(), out.data());
  }
}

status decode(codec_id codec, byte_span bytes, std::span<float> out) {
  if (!is_known(codec) || bytes.size() != encoded_size(codec, out.size()))
    return ec::wrong_shape;
  switch (codec) {
    case codec_id::none:
      if (!bytes.empty())
        std::memcpy(out.data(), bytes.data(), bytes.size());
      break;
    case codec_id::float16:
#if defined(__x86_64__)
      if (has_f16c()) {
        from_halves_f16c(bytes.data(), out.size(), out.data());
        break;
      }
#endif
      from_halves(bytes.data(), out.size(), out.data());
      break;
  }
  return done{};
}

} // namespace waggle
