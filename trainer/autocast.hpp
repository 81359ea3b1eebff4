#pragma once

// Internal to trainer/: includes LibTorch.

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "runtime/core/result.hpp"
#include "runtime/training/precision.hpp"

namespace waggle {

/// Fails with ec::bad_config and a sentence if passes on this device cannot compute in this format.
status check_precision(precision format, const torch::Device& device);

/// While it lives, products of the calling thread on this kind of device are computed in this
/// format (LibTorch's autocast): parameters stay float32 and are cast once for all operations in
/// the scope. Belongs around forward pass and loss; the backward pass uses the format of the
/// forward operations. With float32 it does nothing. REQUIRES: check_precision succeeded.
class autocast {
public:
  autocast(precision format, const torch::Device& device);
  ~autocast();
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;

private:
  const bool on_;
  const bool on_gpu_;
};

} // namespace waggle
