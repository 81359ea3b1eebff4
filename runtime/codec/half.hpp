#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/codec/instructions.hpp"

// The two 16-bit floats, for single values and for arrays. Used by codec.cpp and the other
// families.
namespace waggle::codecs {

static_assert(std::endian::native == std::endian::little,
              "parts are sent as little-endian floats straight from memory");

constexpr float half_max = 65504.0F;

/// One of the two floats around a number that is none: the one with an odd mantissa, which tells
/// the next rounding, to 16 bits, that there was more. So the two of them round as one would.
constexpr float to_odd(double value) {
  auto nearest = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  auto back = static_cast<double>(nearest);
  if (back == value || (bits & 1U) != 0)
    return nearest;
  bool below = (back < 0 ? -back : back) < (value < 0 ? -value : value);
  return std::bit_cast<float>(below ? bits + 1 : bits - 1);
}

/// The nearest IEEE half, ties to even. Finite values beyond ±65504 become ±65504; infinities and
/// NaN stay what they are.
std::uint16_t to_half(float value);
/// Exact. NaN becomes quiet.
float from_half(std::uint16_t half);

/// `n` values; `bytes` holds 2n and needs no alignment.
void to_halves(instructions path, const float* values, std::size_t n, std::byte* bytes);
void from_halves(instructions path, const std::byte* bytes, std::size_t n, float* values);

/// The nearest bfloat16 (the upper half of a float32), ties to even. Finite values beyond the
/// largest, 0x1.fep127, become it; infinities and NaN (made quiet) stay what they are.
std::uint16_t to_bfloat(float value);

} // namespace waggle::codecs
