#include "runtime/training/parameter_sample.hpp"

#include <algorithm>
#include <span>

#include "runtime/core/float_vector.hpp"

namespace waggle {

namespace {

/// Values of a tensor that is copied although the window has only some of them: 64 MiB.
constexpr std::uint64_t copied_values_max = 16'777'216;

} // namespace

digest parameter_sample(const learner& model, epoch_id epoch, std::size_t values_max) {
  auto count = model.parameter_count();
  if (count <= values_max)
    return model.parameters_digest();
  auto windows = (count + values_max - 1) / values_max;
  auto begin = static_cast<std::uint64_t>(epoch.value() % windows) * values_max;
  auto end = std::min<std::uint64_t>(begin + values_max, count);
  const auto& table = model.tensors();
  sha256_stream hash;
  float_vector copy;
  for (std::size_t i = 0; i < table.size() && table[i].what == state_tensor::kind::parameter; ++i) {
    auto first = table.offset(i);
    auto size = table[i].elements();
    if (first + size <= begin || first >= end)
      continue;
    auto values = model.values_of(i);
    if (values.empty() && size > 0) {
      if (size > copied_values_max)
        return {};
      copy.resize(size);
      model.read_tensor(i, copy);
      values = copy;
    }
    auto from = std::max(begin, first) - first;
    auto to = std::min(end, first + size) - first;
    hash.add(std::as_bytes(values.subspan(from, to - from)));
  }
  return hash.finish();
}

} // namespace waggle
