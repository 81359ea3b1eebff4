#pragma once

#include <cstddef>
#include <cstdint>

namespace waggle {

/// The code path of a codec: portable, or for processors with AVX2 and F16C. Both give the same
/// bits; tests compare them.
enum class instructions : std::uint8_t { portable, avx2 };

/// The fastest that this processor (and its operating system) supports.
instructions best_instructions();

} // namespace waggle

// WAGGLE_AVX2 marks functions of the AVX2 path. Defined on x86-64 only, so that other platforms
// compile without them. WAGGLE_IF_AVX2: how many values one of them has handled; 0 on another path.
#if defined(__x86_64__)
#define WAGGLE_AVX2 __attribute__((target("avx2,f16c,popcnt")))
#define WAGGLE_IF_AVX2(path, call)                                                                 \
  ((path) == ::waggle::instructions::avx2 ? (call) : std::size_t{0})
#else
#define WAGGLE_IF_AVX2(path, call) (static_cast<void>(path), std::size_t{0})
#endif
