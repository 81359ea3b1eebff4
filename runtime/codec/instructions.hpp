#pragma once

#include <cstdint>

namespace waggle {

/// Which code a codec runs: the portable one, or its twin for processors with AVX2 and F16C. Both
/// give the same bits; tests compare them.
enum class instructions : std::uint8_t { portable, avx2 };

/// The fastest that this processor (and its operating system) can run.
instructions best_instructions();

} // namespace waggle

// Marks the twins. The name is there on x86-64 only, so that everything else compiles without them.
#if defined(__x86_64__)
#define WAGGLE_AVX2 __attribute__((target("avx2,f16c,popcnt")))
#endif
