#include "runtime/training/local_learner.hpp"

#include "runtime/core/float_vector.hpp"

namespace waggle {

void local_learner::add_change(std::span<const std::size_t> which, std::span<const float> mean,
                               std::span<const float> snapshot) {
  std::lock_guard lock{values_};
  float_vector values;
  std::size_t at = 0;
  for (auto i : which) {
    const auto& tensor = tensors()[i];
    bool square = tensor.never_negative();
    values.resize(static_cast<std::size_t>(tensor.elements()));
    read_tensor(i, values);
    for (auto& x : values) {
      x = changed(x, mean[at], snapshot[at], square);
      ++at;
    }
    write_tensor(i, values);
  }
  ++changes_;
}

std::uint64_t local_learner::copy_tensors(std::span<const std::size_t> which,
                                          std::span<float> out) const {
  std::lock_guard lock{values_};
  for (auto i : which) {
    auto length = static_cast<std::size_t>(tensors()[i].elements());
    read_tensor(i, out.first(length));
    out = out.subspan(length);
  }
  return changes_;
}

} // namespace waggle
