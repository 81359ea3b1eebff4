#pragma once

// Internal to trainer/: includes LibTorch.

#include <span>
#include <string>

#include <torch/torch.h>

#include "runtime/training/state_table.hpp"

namespace waggle {

/// Whether peers exchange a buffer of a module: not if it has no values, or not finite ones, as a
/// mask has.
bool is_exchanged(const torch::Tensor& buffer);

/// Of the shape and the values of a tensor.
digest digest_of(const torch::Tensor& tensor);

/// A buffer's row in a state: floating-point ones as float32, whole numbers as counters.
state_tensor buffer_row(const std::string& name, const torch::Tensor& buffer);
/// Its values, as many as its row has.
void read_buffer(const torch::Tensor& from, std::span<float> out);
/// Numbers of another type than float32 keep their bits where the float32 is the same.
void write_buffer(const torch::Tensor& to, std::span<const float> values);

} // namespace waggle
