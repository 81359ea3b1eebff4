#include "runtime/training/precision.hpp"

#include "runtime/core/named.hpp"

namespace waggle {

namespace {

constexpr precision_row table[] = {
  {"float32", precision::float32, ""},
  {"bfloat16", precision::bfloat16, "needs no scale"},
  {"float16", precision::float16, "GPUs only, with --loss-scale"},
};

} // namespace

std::span<const precision_row> precision_table() {
  return table;
}

const precision_row* find_precision(std::string_view name) {
  return find_named(precision_table(), name);
}

} // namespace waggle
