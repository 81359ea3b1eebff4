#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// What one micro-step did.
struct micro_step {
  double loss = 0;           // mean over the micro-batch
  std::uint64_t samples = 0; // micro-batch size
  bool finite = true;        // false: loss or gradient was NaN or infinite; nothing was accumulated
};

/// Seam between the trainer and what computes: LibTorch in trainer/, a closed-form model in tests.
/// Owns parameters, optimizer state, data and accumulators.
///
/// One thread computes: it alone may call the methods of the first group. The accumulated gradient
/// can be taken from any thread while that one is in the middle of a pass, so that a round never
/// waits for a pass.
class learner {
public:
  virtual ~learner() = default;

  // -- the computing thread -----------------------------------------------------------------------

  /// Forward and backward of the next micro-batch: acc += b·∇, so that unequal micro-batches are
  /// weighted correctly.
  virtual micro_step accumulate() = 0;
  /// One optimizer step with `gradient` (parameter_count values) and learning rate `lr`.
  virtual void apply(std::span<const float> gradient, double lr) = 0;
  /// SHA-256 over the parameters' bytes: equal exactly for equal models.
  [[nodiscard]] virtual digest parameters_digest() const = 0;
  /// A copy of parameters and optimizer state, without learning rates or epoch, behind `headroom`
  /// bytes that the caller fills.
  [[nodiscard]] virtual std::vector<std::byte> save_state(std::size_t headroom) const = 0;
  /// All or nothing: fails with ec::schema_mismatch or ec::malformed and changes nothing.
  virtual status load_state(byte_span state) = 0;

  // -- any thread ---------------------------------------------------------------------------------

  /// float32 values in the flat parameter vector, and so in a gradient. Fixed (INV-8).
  [[nodiscard]] virtual std::size_t parameter_count() const = 0;
  /// Names, shapes, optimizer and its statistics: equal exactly for peers that may average and
  /// exchange state.
  [[nodiscard]] virtual digest schema() const = 0;
  /// Takes what is accumulated: writes acc / Σb to `out` (parameter_count values; zeros if Σb = 0),
  /// empties the accumulators, returns Σb.
  virtual std::uint64_t take_mean_gradient(std::span<float> out) = 0;
  /// Empties the accumulators, returns Σb.
  virtual std::uint64_t drop_gradient() = 0;
  /// Σb of what is accumulated.
  [[nodiscard]] virtual std::uint64_t accumulated_samples() const = 0;
  /// Where the parameters lie in what `save_state` wrote behind its headroom.
  [[nodiscard]] virtual byte_span parameters_in(byte_span state) const = 0;
};

/// Makes the learner on the thread that will use it. Fails with a sentence for the operator.
using learner_factory = std::function<result<std::unique_ptr<learner>>()>;

} // namespace waggle
