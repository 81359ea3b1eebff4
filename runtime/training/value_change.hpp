#pragma once

#include <cstddef>
#include <span>

#include "runtime/training/state_table.hpp"

namespace waggle {

/// `changed` (learner.hpp) of each value of a tensor, in one pass. All lengths are equal.
void change_values(std::span<float> values, std::span<const float> mean,
                   std::span<const float> snapshot, bool square);

/// learner::add_change: for each tensor, `let_change` gets its index, and what it is to call with
/// the tensor's values.
template <class LetChange>
void change_tensors(const state_table& table, std::span<const std::size_t> which,
                    std::span<const float> mean, std::span<const float> snapshot,
                    LetChange let_change) {
  for (auto i : which) {
    auto count = static_cast<std::size_t>(table[i].elements());
    let_change(i, [&](std::span<float> values) {
      change_values(values, mean.first(count), snapshot.first(count), table[i].never_negative());
    });
    mean = mean.subspan(count);
    snapshot = snapshot.subspan(count);
  }
}

} // namespace waggle
