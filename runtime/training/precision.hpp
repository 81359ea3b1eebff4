#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace waggle {

/// The number format of the products in forward and backward passes. Parameters, gradients and
/// statistics are float32 with each of them.
enum class precision : std::uint8_t { float32, bfloat16, float16 };

struct precision_row {
  std::string_view name;
  precision format;
  std::string_view note; // half a sentence; may be empty
};

std::span<const precision_row> precision_table();
/// Null if there is no format with this name.
const precision_row* find_precision(std::string_view name);

} // namespace waggle
