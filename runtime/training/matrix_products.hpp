#pragma once

#include <cstddef>
#include <span>

namespace waggle {

/// Products of a large matrix with a few vectors: the arithmetic of low_rank. Matrices are row by
/// row, in float32. Results are the same on every machine (the order of each sum is fixed, and
/// nothing is contracted to a fused multiply-add).

/// out[j] = ⟨x, q[j]⟩ for the `rank` rows q[j] of `q`, each as long as x.
void dot_with_each(std::span<const float> x, std::span<const float> q, std::size_t rank, float* out,
                   std::size_t out_stride);

/// q[j] += p[j · p_stride] · x for the `rank` rows q[j] of `q`, each as long as x.
void add_to_each(std::span<const float> x, const float* p, std::size_t p_stride, std::size_t rank,
                 std::span<float> q);

/// out = Σ_j p[j · p_stride] · q[j], for the `rank` rows q[j] of `q`, each as long as out.
void combine(const float* p, std::size_t p_stride, std::span<const float> q, std::size_t rank,
             std::span<float> out);

/// Makes the `rank` rows of `rows` orthonormal, in place, by the modified Gram-Schmidt process in
/// double precision, one row after another. A row of which nothing is left beyond `negligible`
/// times its length, or that is not finite, becomes zeros.
void orthonormalize(std::span<float> rows, std::size_t rank, double negligible = 1e-8);

} // namespace waggle
