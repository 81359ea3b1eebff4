#pragma once

#include <cstdint>

namespace waggle {

/// How sums with a product are computed. Both give the same bits; tests compare them.
enum class fused_path : std::uint8_t {
  portable, // in double precision
  fma       // by instructions of x86 processors with AVX2 and FMA
};

/// The fastest path that this processor has.
fused_path best_fused_path();

/// out = (keep · sums) + by · a, or with `b` (keep · sums) + (by · a) · b: what is in brackets is
/// rounded, and then the sum, but not its last product. `out` may be `sums`.
struct fused_sum {
  float* out;
  const float* sums;
  const float* a;
  const float* b; // null: there is none
  float by;
  float keep;

  /// REQUIRES: the vectors have `count` values.
  void compute(std::int64_t count, fused_path path) const;
  /// The same from value `at` on.
  [[nodiscard]] fused_sum from(std::int64_t at) const {
    return {out + at, sums + at, a + at, b != nullptr ? b + at : nullptr, by, keep};
  }
};

} // namespace waggle
