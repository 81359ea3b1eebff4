#pragma once

// Internal to trainer/: includes LibTorch.

#include <cstdint>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "runtime/training/optimizer_table.hpp"

namespace waggle {

/// What one application of an update rule reads and writes: a range of all flat vectors, or a
/// parameter with its gradient and its statistics, all in their shapes.
struct step_tensors {
  torch::Tensor parameters;
  torch::Tensor gradient;                // may be replaced, but not written to
  std::vector<torch::Tensor> statistics; // in the order of optimizer_row::statistics
};

/// The step of an optimizer of optimizer_table. In a fixed order: equal inputs give equal bytes.
struct update_rule {
  std::string_view name; // of its row in optimizer_table
  /// False: element-wise, so that any range can be computed by itself. True: it needs each tensor
  /// as a whole.
  bool whole_tensors;
  /// Step number `count`, from 1 on.
  void (*step)(const optimizer_identity& numbers, double lr, std::uint64_t count, step_tensors& v);
};

/// REQUIRES: `name` is in optimizer_table.
const update_rule& update_rule_named(std::string_view name);

} // namespace waggle
