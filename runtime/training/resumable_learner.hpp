#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/core/bytes.hpp"
#include "runtime/core/float_vector.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// An accumulated gradient as a learner holds it, before it is divided. Only a learner of the same
/// kind understands it.
struct partial_gradient {
  std::shared_ptr<const float_vector> sum; // in the learner's own layout; null: nothing to keep
  std::uint64_t samples = 0; // none: parameters of its own, which are no gradient
  std::uint64_t passes = 0; // with learner::adds_in_place; otherwise 0
  double scale = 1;         // of the loss, in the sum
};

/// What a learner can keep over a restart although it is no part of the run's state: the position
/// in its data, and the gradient of an unfinished epoch.
class resumable_learner {
public:
  virtual ~resumable_learner() = default;

  /// The length of a position, in bytes.
  static constexpr std::size_t position_bytes_max = 64_KiB; // a loop chooses what it has

  /// Whether `copy_gradient` has it.
  [[nodiscard]] virtual bool keeps_gradient() const { return true; }

  // -- any thread ---------------------------------------------------------------------------------

  /// The position in the data after the last pass that has ended.
  [[nodiscard]] virtual std::string position() const = 0;
  /// The same at the moment when the gradient was last taken or dropped: after all samples in it,
  /// and before those of a pass that was running.
  [[nodiscard]] virtual std::string taken_position() const = 0;

  // -- the computing thread, while no pass runs ---------------------------------------------------

  /// Continues with the pass after `position`. Fails with ec::malformed, and changes nothing, if it
  /// is of other data or another seed.
  virtual status load_position(std::string_view position) = 0;
  /// A copy of the accumulated gradient, which stays.
  [[nodiscard]] virtual partial_gradient copy_gradient() const = 0;
  /// Continues to accumulate from here, bit for bit. Fails with ec::malformed, and changes nothing,
  /// if it does not fit this learner. REQUIRES: nothing was accumulated.
  virtual status load_gradient(const partial_gradient& partial) = 0;
};

} // namespace waggle
