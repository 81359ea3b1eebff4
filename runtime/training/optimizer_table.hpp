#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/byte_io.hpp"
#include "runtime/training/state_table.hpp"

namespace waggle {

/// The properties of an optimizer, besides the learning rate, that must be equal on all peers.
struct optimizer_identity {
  std::string kind; // a name in the table below
  double momentum = 0;
  bool nesterov = false; // sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;

  friend bool operator==(const optimizer_identity&, const optimizer_identity&) = default;
};

using statistic_names = std::vector<std::pair<std::string, state_tensor::kind>>;

/// An optimizer of `waggle train` and of a user's own loop: what can be known about it without
/// LibTorch. trainer/optimizers.cpp computes it.
struct optimizer_row {
  std::string_view name;
  bool takes_momentum; // --momentum
  /// The statistics that it keeps for each parameter, in order, with the names that torch::optim
  /// uses.
  statistic_names (*statistics)(const optimizer_identity& of);
  /// Writes its hyper-parameters other than the weight decay: the schema hashes them.
  void (*write)(const optimizer_identity& from, byte_writer& out);
};

std::span<const optimizer_row> optimizer_table();
/// Null if there is no optimizer with this name.
const optimizer_row* find_optimizer(std::string_view name);

} // namespace waggle
