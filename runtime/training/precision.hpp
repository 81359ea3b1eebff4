#pragma once

#include <cstdint>
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

constexpr precision_row precision_table[] = {
  {"float32", precision::float32, ""},
  {"bfloat16", precision::bfloat16, "needs no scale"},
  {"float16", precision::float16, "GPUs only, with --loss-scale"},
};

} // namespace waggle
