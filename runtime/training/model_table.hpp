#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace waggle {

/// The numbers that a built-in model is made from.
struct model_shape {
  std::int64_t layers = 2;
  std::int64_t width = 64;
  std::int64_t heads = 4;    // char-gpt
  std::int64_t context = 64; // bytes, or tokens, that a prediction depends on
};

/// A model of `waggle train`: what can be known about it without LibTorch. trainer/models.cpp makes
/// it.
struct model_row {
  std::string_view name;
  bool images = false; // it classifies images; otherwise it predicts bytes or tokens
  /// Fails with ec::bad_config and a sentence if there is no such model with this shape, whose
  /// numbers are above 0.
  status (*check)(const model_shape& shape);
  /// What it computes beyond what the shapes of its tensors show; empty if there is nothing. Peers
  /// with different texts do not average.
  std::string (*function)(const model_shape& shape);
};

std::span<const model_row> model_table();
/// Null if there is no model with this name.
const model_row* find_model(std::string_view name);

} // namespace waggle
