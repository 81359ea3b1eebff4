#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "runtime/training/state_table.hpp"

namespace waggle {

/// Who has the tensors of a state, by their number in its table.
class tensor_store {
public:
  virtual ~tensor_store() = default;
  /// Copies the values of a tensor, row by row. `out` has as many.
  virtual void read_tensor(std::size_t which, std::span<float> out) const = 0;
  /// Replaces the values of the tensor.
  virtual void write_tensor(std::size_t which, std::span<const float> values) = 0;
};

/// Copies these tensors, one after another.
void copy_tensors_of(const tensor_store& from, const state_table& table,
                     std::span<const std::size_t> which, std::span<float> out);
/// learner::add_change.
void change_tensors_of(tensor_store& to, const state_table& table,
                       std::span<const std::size_t> which, std::span<const float> mean,
                       std::span<const float> snapshot);
/// learner::merge_buffers.
void merge_buffers_of(tensor_store& to, const state_table& table, std::span<const float> mean,
                      std::span<const float> contributed);

// -- changes of values ----------------------------------------------------------------------------

/// x + mean − snapshot: what was learned since the snapshot remains (INV-5). Exactly the mean if
/// nothing was. A square stays at least the smaller one of x and the mean: it may have decayed
/// below the change, and the optimizer divides by its root. It does not follow a mean below 0, to
/// which a lossy codec can round small squares.
inline float changed(float x, float mean, float snapshot, bool square) {
  if (square && mean < 0)
    return x;
  auto y = x == snapshot ? mean : x + (mean - snapshot);
  return square ? std::max(y, std::min(x, mean)) : y;
}

/// The point at the share `alpha` (0 to 1) of the way from `x` to the mean; exactly `x` if they are
/// equal.
inline float moved_towards(float x, float mean, double alpha) {
  auto from = static_cast<double>(x);
  return static_cast<float>(from + alpha * (static_cast<double>(mean) - from));
}

/// The gradient of a peer's last step, after a round has averaged it. If there was no step since
/// the snapshot, it is the mean, so a round that begins before the next step does not correct the
/// same difference again. Otherwise it stays: the change belongs to the gradient before it.
inline void change_gradient(std::span<float> gradient, std::span<const float> mean,
                            std::span<const float> snapshot) {
  if (snapshot.empty() || std::equal(gradient.begin(), gradient.end(), snapshot.begin()))
    std::copy(mean.begin(), mean.end(), gradient.begin());
}

/// Changes the values of a tensor by its rule, in one pass: `changed` of each, or the larger
/// number. All lengths are equal.
void change_values(std::span<float> values, std::span<const float> mean,
                   std::span<const float> snapshot, change_rule by);

/// change_tensors_of where the values are: for each tensor, `let_change` gets its index, and what
/// it is to call with the tensor's values.
template <class LetChange>
void change_tensors(const state_table& table, std::span<const std::size_t> which,
                    std::span<const float> mean, std::span<const float> snapshot,
                    LetChange let_change) {
  for (auto i : which) {
    auto count = static_cast<std::size_t>(table[i].elements());
    let_change(i, [&](std::span<float> values) {
      change_values(values, mean.first(count), snapshot.first(count), table[i].changes_by());
    });
    mean = mean.subspan(count);
    snapshot = snapshot.subspan(count);
  }
}

} // namespace waggle
