#pragma once

// Internal to trainer/: includes LibTorch.

#include <torch/torch.h>

namespace waggle {

// Sums and products of float32 tensors that do not depend on the number of threads or on the vector
// instructions of a CPU, unlike LibTorch's: peers with equal tensors get equal bytes. On a GPU they
// are LibTorch's, which are equal on peers with equal GPUs.

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
