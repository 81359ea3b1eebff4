#include "runtime/codec/half.hpp"

#include <cstring>

#include "runtime/codec/codec_table.hpp"
#include "runtime/core/vectorized.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace waggle::codecs {

// Selections instead of branches, so that the compiler vectorizes the loops below.

std::uint16_t to_half(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  auto magnitude = bits & 0x7fffffffU;
  auto half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13U) & 1U)) >> 13U;
  // Below 2^-14: the unit of a subnormal half, 2^-24, is that of a float at 0.5. The addition
  // rounds.
  auto small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  half = magnitude < 0x38800000U ? small : half;
  half = magnitude >= 0x477fe000U ? 0x7bffU : half; // 65504 and more
  half = magnitude == 0x7f800000U ? 0x7c00U : half;
  // NaN: quiet, keep the upper payload bits, as F16C does.
  half = magnitude > 0x7f800000U ? 0x7e00U | ((magnitude >> 13U) & 0x1ffU) : half;
  return static_cast<std::uint16_t>(((bits >> 16U) & 0x8000U) | half);
}

float from_half(std::uint16_t half) {
  auto sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  auto exponent = static_cast<std::uint32_t>(half) & 0x7c00U;
  auto mantissa = static_cast<std::uint32_t>(half) & 0x3ffU;
  auto bits = ((exponent << 13U) + (112U << 23U)) | (mantissa << 13U);
  // Zero, subnormal: mantissa · 2^-24, exact in float.
  auto small = static_cast<float>(static_cast<std::int32_t>(mantissa)) * 0x1p-24F;
  bits = exponent == 0 ? std::bit_cast<std::uint32_t>(small) : bits;
  // Infinity, NaN (made quiet, as F16C does).
  auto quiet = mantissa != 0 ? 0x400000U : 0U;
  bits = exponent == 0x7c00U ? 0x7f800000U | quiet | (mantissa << 13U) : bits;
  return std::bit_cast<float>(sign | bits);
}

std::uint16_t to_bfloat(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  auto magnitude = bits & 0x7fffffffU;
  auto rounded = magnitude + 0x7fffU + ((magnitude >> 16U) & 1U);
  rounded = rounded > 0x7f7fffffU ? 0x7f7f0000U : rounded;
  rounded = magnitude == 0x7f800000U ? 0x7f800000U : rounded;
  rounded = magnitude > 0x7f800000U ? magnitude | 0x400000U : rounded; // NaN: quiet
  return static_cast<std::uint16_t>(((bits & 0x80000000U) | rounded) >> 16U);
}

namespace {

template <std::uint16_t Encode(float)>
void encode_portable(const float* values, std::size_t n, std::byte* out) {
  for (std::size_t i = 0; i < n; ++i) {
    auto pair = Encode(values[i]);
    std::memcpy(out + 2 * i, &pair, 2);
  }
}

#if defined(__x86_64__)

WAGGLE_AVX2 std::size_t to_halves_avx2(const float* values, std::size_t n, std::byte* out) {
  const auto top = _mm256_set1_ps(half_max);
  const auto bottom = _mm256_set1_ps(-half_max);
  const auto magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  const auto infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    auto x = _mm256_loadu_ps(values + i);
    // min/max return their second operand for NaN: NaN is preserved.
    auto clamped = _mm256_max_ps(bottom, _mm256_min_ps(top, x));
    auto infinite = _mm256_cmp_ps(_mm256_and_ps(x, magnitude), infinity, _CMP_EQ_OQ);
    clamped = _mm256_blendv_ps(clamped, x, infinite);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return i;
}

WAGGLE_AVX2 std::size_t from_halves_avx2(const std::byte* bytes, std::size_t n, float* out) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(
      out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i))));
  return i;
}

/// The bfloats of eight values, in the low halves of the lanes; see to_bfloat.
WAGGLE_AVX2 inline __m256i bfloats_of_eight(const float* values) {
  const auto infinity = _mm256_set1_epi32(0x7f800000);
  const auto largest = _mm256_set1_epi32(0x7f7f0000);
  auto bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
  auto magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  auto odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 16), _mm256_set1_epi32(1));
  auto rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7fff)), odd);
  // Unsigned: values above the sign bit came from a NaN, which is replaced below.
  auto finite = _mm256_cmpgt_epi32(infinity, magnitude);
  rounded = _mm256_blendv_epi8(rounded, _mm256_min_epu32(rounded, largest), finite);
  auto quiet = _mm256_or_si256(magnitude, _mm256_set1_epi32(0x400000));
  rounded = _mm256_blendv_epi8(rounded, quiet, _mm256_cmpgt_epi32(magnitude, infinity));
  auto sign = _mm256_and_si256(bits, _mm256_set1_epi32(static_cast<int>(0x80000000U)));
  return _mm256_srli_epi32(_mm256_or_si256(rounded, sign), 16);
}

WAGGLE_AVX2 std::size_t to_bfloats_avx2(const float* values, std::size_t n, std::byte* out) {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto packed =
      _mm256_packus_epi32(bfloats_of_eight(values + i), bfloats_of_eight(values + i + 8));
    // The packing instruction works on halves of a register; this restores the order.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i),
                        _mm256_permute4x64_epi64(packed, 0xd8));
  }
  return i;
}

#endif

} // namespace

void to_halves(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto done = WAGGLE_IF_AVX2(path, to_halves_avx2(values, n, bytes));
  encode_portable<to_half>(values + done, n - done, bytes + 2 * done);
}

void from_halves(instructions path, const std::byte* bytes, std::size_t n, float* values) {
  auto done = WAGGLE_IF_AVX2(path, from_halves_avx2(bytes, n, values));
  for (auto i = done; i < n; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes + 2 * i, 2);
    values[i] = from_half(half);
  }
}

namespace {

void to_bfloats(instructions path, const float* values, std::size_t n, std::byte* bytes) {
  auto done = WAGGLE_IF_AVX2(path, to_bfloats_avx2(values, n, bytes));
  encode_portable<to_bfloat>(values + done, n - done, bytes + 2 * done);
}

WAGGLE_VECTORIZED
void from_bfloats(instructions /*path*/, const std::byte* bytes, std::size_t n, float* values) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t upper = 0;
    std::memcpy(&upper, bytes + 2 * i, 2);
    values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16U);
  }
}

std::size_t two_bytes_each(std::size_t n) {
  return 2 * n;
}

template <auto Decode>
void read_pairs(instructions path, const std::byte* bytes, std::size_t /*n*/, std::size_t begin,
                std::size_t count, float* values) {
  Decode(path, bytes + 2 * begin, count, values);
}

} // namespace

constexpr codec_row float16{codec_id::float16, "float16", "",      16,
                            two_bytes_each,    to_halves, nullptr, read_pairs<from_halves>};

constexpr codec_row bfloat16{codec_id::bfloat16, "bfloat16", "",      16,
                             two_bytes_each,     to_bfloats, nullptr, read_pairs<from_bfloats>};

} // namespace waggle::codecs
