#pragma once

// Internal to trainer/: includes LibTorch.

#include <torch/torch.h>

namespace waggle {

// Sums and products of float32 tensors that do not depend on the number of threads or on the vector
// instructions of a CPU, unlike LibTorch's: peers with equal tensors get equal bytes. On a GPU they
// are LibTorch's, which are equal on peers with equal GPUs.
//
// Of LibTorch's own operations with floats, these give the same bits on every CPU: mul, div, sqrt,
// add without a factor, addcdiv, maximum, clamp, sign. Those with a factor or a product, add_,
// addcmul_ and lerp_, round their sum once or twice: the first three below replace them.

/// to = (keep · to) + by · x: what is in brackets is rounded, and then the sum, as by LibTorch's
/// mul_ and add_ on a CPU with AVX2. `to` is contiguous.
torch::Tensor add_scaled(torch::Tensor to, const torch::Tensor& x, double by, double keep = 1);
/// to + by · x.
torch::Tensor plus_scaled(const torch::Tensor& to, const torch::Tensor& x, double by);
/// to = (keep · to) + (by · a) · b, as by mul_ and addcmul_ there. `to` is contiguous.
torch::Tensor add_product(torch::Tensor to, const torch::Tensor& a, const torch::Tensor& b,
                          double by, double keep = 1);

/// The sum of the squares, in double precision.
double sum_of_squares(const torch::Tensor& x);
/// The Euclidean length of all values.
double length_of(const torch::Tensor& x);
/// The root of the mean of the squares.
double root_mean_square(const torch::Tensor& x);
/// The mean of each row of a matrix.
torch::Tensor row_means(const torch::Tensor& matrix);
/// The mean of each column of a matrix.
torch::Tensor column_means(const torch::Tensor& matrix);
/// The product of two matrices.
torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b);

} // namespace waggle
