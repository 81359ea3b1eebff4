#include "runtime/codec/instructions.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace waggle {

instructions best_instructions() {
#if defined(__x86_64__)
  // clang 14 does not know the name "f16c"; the check for "avx2" includes that the operating system
  // saves the registers.
  static const bool has_avx2 = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt")
           && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  }();
  if (has_avx2)
    return instructions::avx2;
#endif
  return instructions::portable;
}

} // namespace waggle
