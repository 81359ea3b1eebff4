#pragma once

#include <array>
#include <span>

#include "runtime/training/loop_learner.hpp"

namespace waggle::testing {

/// For loop_port::offer: the gradient, and the buffers behind it.
inline std::array<offered_tensor, 2> offered(const loop_port& port, std::span<const float> values) {
  auto parameters = static_cast<std::size_t>(port.tensors().parameter_count());
  return {offered_tensor{values.data(), parameters},
          offered_tensor{values.data() + parameters, values.size() - parameters}};
}

} // namespace waggle::testing
