#include "runtime/training/tensor_store.hpp"

#include <cmath>

#include "runtime/codec/exact_number.hpp"
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

/// Each number becomes the larger one; but if what we contributed was the largest, it may have
/// changed in any way since. `snapshot`: empty, or what we contributed.
void take_larger(std::span<float> values, std::span<const float> largest,
                 std::span<const float> snapshot) {
  for (std::size_t i = 0; i + exact_values <= values.size(); i += exact_values) {
    auto number = [i](auto all) { return all.subspan(i).template first<exact_values>(); };
    auto theirs = read_exact(number(largest));
    bool ours = !snapshot.empty() && theirs == read_exact(number(snapshot));
    if (theirs && !ours && *theirs > read_exact(number(std::span<const float>{values})))
      std::ranges::copy(number(largest), number(values).begin());
  }
}

} // namespace

void change_values(std::span<float> values, std::span<const float> mean,
                   std::span<const float> snapshot, change_rule by) {
  WAGGLE_CHECK(mean.size() == values.size() && snapshot.size() == values.size(),
               "a change has the values of its tensor");
  if (by == change_rule::largest)
    return take_larger(values, mean, snapshot);
  (by == change_rule::square ? change_squares : change)(values.data(), mean.data(), snapshot.data(),
                                                        values.size());
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
  for (auto i : table.indices_of({state_tensor::kind::buffer, state_tensor::kind::counter})) {
    auto by = table[i].changes_by();
    values.resize(static_cast<std::size_t>(table[i].elements()));
    to.read_tensor(i, values);
    for (std::size_t j = 0; by != change_rule::largest && j < values.size(); ++j)
      values[j] = contributed.empty() || !std::isfinite(values[j])
                    ? mean[j]
                    : changed(values[j], mean[j], contributed[j], by == change_rule::square);
    if (by == change_rule::largest)
      take_larger(values, mean.first(values.size()),
                  contributed.first(contributed.empty() ? 0 : values.size()));
    to.write_tensor(i, values);
    mean = mean.subspan(values.size());
    contributed = contributed.subspan(contributed.empty() ? 0 : values.size());
  }
}

} // namespace waggle
