#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/training/state_table.hpp"

namespace waggle {

/// The properties of an optimizer, besides the learning rate, that must be equal on all peers.
struct optimizer_identity {
  std::string kind{}; // a name in the table below
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool amsgrad = false;
  double smoothing = 0.99;
  bool centered = false;
  double trust = 1e-3;
  double weight_decay = 0;
  bool decay_vectors = true; // false: tensors with fewer than two dimensions do not decay

  friend bool operator==(const optimizer_identity&, const optimizer_identity&) = default;
};

/// A number or switch that some optimizers have: an option, and a member of the identity.
struct hyper_parameter {
  std::string_view name; // of the option
  std::string_view help; // half a sentence
  double optimizer_identity::*number = nullptr;
  bool optimizer_identity::*flag = nullptr; // instead of `number`
  double low = 0;
  double high = 1;
  bool high_excluded = true;
  std::string_view why_not_below{};
  std::string_view why_not_above{};

  /// 0 or 1 for a switch.
  [[nodiscard]] double of(const optimizer_identity& identity) const;
  void set(optimizer_identity& identity, double value) const;
};

std::span<const hyper_parameter> hyper_parameters();

/// A hyper-parameter that an optimizer uses.
struct hyper_default {
  std::string_view name; // of a hyper_parameter
  double value;          // if it is not set
};

using tensor_shape = std::vector<std::uint64_t>;

/// What an optimizer keeps for one parameter.
struct statistic {
  std::string name; // as in torch::optim
  state_tensor::kind what;
  tensor_shape shape;
};

/// An optimizer of `waggle train` and of a user's own loop: what can be known about it without
/// LibTorch. trainer/update_rules.cpp computes it.
struct optimizer_row {
  std::string_view name;
  std::string_view help;                // half a sentence
  std::span<const hyper_default> takes; // besides the weight decay
  /// The statistics that it keeps for a parameter of this shape, in order. They begin as zeros.
  std::vector<statistic> (*statistics)(const optimizer_identity& of, const tensor_shape& shape);

  /// Null if it does not use the hyper-parameter.
  [[nodiscard]] const hyper_default* find(std::string_view hyper) const;
};

std::span<const optimizer_row> optimizer_table();
/// Null if there is no optimizer with this name.
const optimizer_row* find_optimizer(std::string_view name);

/// The optimizer `kind` with its defaults, except for the values in `set` that it uses.
optimizer_identity identity_with(std::string_view kind, const std::map<std::string, double>& set);
/// The optimizers that use a hyper-parameter, and the defaults: "sgd (0) and lars (0.9)".
std::string users_of(const hyper_parameter& hyper);
/// All optimizers, for the help text.
std::string optimizer_help();
/// Combinations that have no meaning. Fails with ec::bad_config and a sentence.
status check_optimizer(const optimizer_identity& optimizer);

} // namespace waggle
