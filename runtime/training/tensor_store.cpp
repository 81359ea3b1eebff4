#include "runtime/training/tensor_store.hpp"

#include <cmath>

#include "runtime/core/check.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/vectorized.hpp"

namespace waggle {

namespace {

WAGGLE_VECTORIZED void change(float* __restrict values, const float* __restrict mean,
                              const float* __restrict snapshot, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = changed(values[i], mean[i], snapshot[i], false);
}

void change_squares(float* values, const float* mean, const float* snapshot, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = changed(values[i], mean[i], snapshot[i], true);
}

} // namespace

void change_values(std::span<float> values, std::span<const float> mean,
                   std::span<const float> snapshot, bool square) {
  WAGGLE_CHECK(mean.size() == values.size() && snapshot.size() == values.size(),
               "a change has the values of its tensor");
  (square ? change_squares : change)(values.data(), mean.data(), snapshot.data(), values.size());
}

void copy_tensors_of(const tensor_store& from, const state_table& table,
                     std::span<const std::size_t> which, std::span<float> out) {
  for (auto i : which) {
    auto count = static_cast<std::size_t>(table[i].elements());
    from.read_tensor(i, out.first(count));
    out = out.subspan(count);
  }
}

void change_tensors_of(tensor_store& to, const state_table& table,
                       std::span<const std::size_t> which, std::span<const float> mean,
                       std::span<const float> snapshot) {
  float_vector values;
  change_tensors(table, which, mean, snapshot, [&](std::size_t i, auto change) {
    values.resize(static_cast<std::size_t>(table[i].elements()));
    to.read_tensor(i, values);
    change(values);
    to.write_tensor(i, values);
  });
}

void merge_buffers_of(tensor_store& to, const state_table& table, std::span<const float> mean,
                      std::span<const float> contributed) {
  float_vector values;
  std::size_t at = 0;
  for (auto i : table.indices_of({state_tensor::kind::buffer})) {
    values.resize(static_cast<std::size_t>(table[i].elements()));
    to.read_tensor(i, values);
    for (auto& x : values) {
      x = contributed.empty() || !std::isfinite(x)
            ? mean[at]
            : changed(x, mean[at], contributed[at], table[i].never_negative());
      ++at;
    }
    to.write_tensor(i, values);
  }
}

} // namespace waggle
