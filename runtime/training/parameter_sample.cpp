#include "runtime/training/parameter_sample.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "runtime/core/float_vector.hpp"

namespace waggle {

namespace {

/// Values of a tensor that is copied although the window has only some of them: 64 MiB.
constexpr std::uint64_t copied_values_max = 16'777'216;

/// Calls `take` with the values of the epoch's window, in order. False: the window lies in a tensor
/// that is too large to copy.
bool for_window(const learner& model, epoch_id epoch, std::size_t values_max,
                const std::function<void(std::span<const float>)>& take) {
  auto count = model.parameter_count();
  auto windows = std::max<std::uint64_t>((count + values_max - 1) / values_max, 1);
  auto begin = static_cast<std::uint64_t>(epoch.value() % windows) * values_max;
  auto end = std::min<std::uint64_t>(begin + values_max, count);
  const auto& table = model.tensors();
  float_vector copy;
  for (std::size_t i = 0; i < table.size() && table[i].what == state_tensor::kind::parameter; ++i) {
    auto first = table.offset(i);
    auto size = table[i].elements();
    if (first + size <= begin || first >= end)
      continue;
    auto values = model.values_of(i);
    if (values.empty() && size > 0) {
      if (size > copied_values_max)
        return false;
      copy.resize(size);
      model.read_tensor(i, copy);
      values = copy;
    }
    auto from = std::max(begin, first) - first;
    auto to = std::min(end, first + size) - first;
    take(values.subspan(from, to - from));
  }
  return true;
}

/// Finite only if every value is: opposite infinities give NaN.
double sum_of(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

} // namespace

digest parameter_sample(const learner& model, epoch_id epoch, std::size_t values_max) {
  sha256_stream hash;
  bool finite = true;
  bool complete = for_window(model, epoch, values_max, [&](std::span<const float> values) {
    hash.add(std::as_bytes(values));
    finite = finite && std::isfinite(sum_of(values));
  });
  if (!complete)
    return {};
  return finite ? hash.finish() : not_finite_sample();
}

const digest& not_finite_sample() {
  static const digest one = sha256("parameters that are not finite");
  return one;
}

bool sample_is_finite(const learner& model, epoch_id epoch, std::size_t values_max) {
  bool finite = true;
  for_window(model, epoch, values_max, [&](std::span<const float> values) {
    finite = finite && std::isfinite(sum_of(values));
  });
  return finite;
}

} // namespace waggle
