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
