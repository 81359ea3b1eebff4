#pragma once

// Compiles a function for two instruction sets where GCC can; the results are the same.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__)                     \
  && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define WAGGLE_VECTORIZED __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define WAGGLE_VECTORIZED
#endif
