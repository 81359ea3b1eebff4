#pragma once

#include <cstdint>
#include <memory>

#include "runtime/core/bytes.hpp"
#include "runtime/core/float_vector.hpp"

namespace waggle {

/// An accumulated gradient as a learner holds it, before it is divided. Only a learner of the same
/// kind understands it.
struct partial_gradient {
  std::shared_ptr<const float_vector> sum; // in the learner's own layout; null: nothing to keep
  std::uint64_t samples = 0;               // none: parameters of its own, which are no gradient
  std::uint64_t passes = 0;                // with learner_abilities::adds_in_place; otherwise 0
  double scale = 1;                        // of the loss, in the sum
};

/// The length of learner::position, in bytes.
constexpr std::size_t position_bytes_max = 64_KiB; // a loop chooses what it has

} // namespace waggle
