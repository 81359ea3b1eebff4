#pragma once

// Internal to trainer/: includes LibTorch.

#include <cstdint>
#include <functional>

#include <torch/torch.h>

namespace waggle {

/// The rate of the steps below.
constexpr double fixed_rate = 0.01;

/// learner::rounding of an optimizer on this device: a hash of the matrix of 17 rows and 59 columns
/// that three steps leave of a fixed one. Python does the same, with torch's optimizers
/// (trainer/python/waggle/_rounding.py).
/// @param step changes the parameters, which are this matrix, by a gradient.
std::uint64_t rounding_of(
  const torch::Device& on,
  const std::function<void(torch::Tensor& parameters, const torch::Tensor& gradient)>& step);

} // namespace waggle
