#pragma once

#include "runtime/codec/instructions.hpp"
#include "runtime/core/bytes.hpp"
#include "runtime/core/result.hpp"

// Half-precision distances to the mean in units of the deviation ("MEANSTD"; a part is
// one row): m = mean, s = max(√(Σ(x−m)²/n), 2⁻²³), q = half((x−m)/s), decoded as m + s·q. Layout:
// m, s (float32), then n halves. A part with a value that is not finite is written as m = NaN, s =
// 0, q = 0, and all its values are decoded as NaN.
namespace waggle::codecs {

constexpr std::size_t scaled_half_size(std::size_t n) {
  return 8 + 2 * n;
}

/// REQUIRES: n > 0; `bytes` holds scaled_half_size(n).
void to_scaled_halves(instructions path, const float* values, std::size_t n, std::byte* bytes);

struct half_scale {
  float mean = 0;
  float deviation = 0; // 0: the part is NaN
};

/// Reads and checks the first 8 bytes. Fails with ec::malformed if no encoder writes them.
result<half_scale> read_half_scale(const std::byte* header);

/// `halves` points to the first value to read. The results are finite for all finite halves.
void from_scaled_halves(instructions path, half_scale scale, const std::byte* halves, std::size_t n,
                        float* values);

} // namespace waggle::codecs
