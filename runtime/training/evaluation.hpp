#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "runtime/core/float_vector.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/training/learner.hpp"

namespace waggle {

/// How good the weights that the peers share at an epoch are, on data that nobody trains on.
struct evaluation {
  double loss = std::numeric_limits<double>::quiet_NaN();     // mean over all predictions
  double accuracy = std::numeric_limits<double>::quiet_NaN(); // share that is right; NaN: unknown
  std::uint64_t samples = 0;
};

/// Measures weights. Owns a model of its own, so that training goes on meanwhile. Used by one
/// thread.
class evaluator {
public:
  virtual ~evaluator() = default;
  /// `weights`: see weights_of. Returns early with ec::shutting_down once `stop` is true. Fails
  /// with ec::io_error if the data cannot be read.
  virtual result<evaluation> measure(std::span<const float> weights,
                                     const std::atomic<bool>& stop) = 0;
};
using evaluator_factory = std::function<result<std::unique_ptr<evaluator>>()>;

/// When a peer evaluates.
struct evaluation_plan {
  evaluator_factory make;
  milliseconds every{10'000}; // at least from the end of one to the next
  epoch_id last;              // of the run, which is evaluated in any case; 0: it has no end
  bool own_thread = true;     // otherwise in one of the actors' threads
  /// Whether the run ends with this state for another reason; null: never.
  std::function<bool(const learner& model)> ended{};
};

/// The parameters of a learner, then its buffers: the anchor's, if its peers share one. The
/// computing thread.
inline float_vector weights_of(const learner& from) {
  const auto& table = from.tensors();
  float_vector out(static_cast<std::size_t>(table.parameter_count() + table.buffer_count()));
  copy_tensors_of(from, table,
                  table.indices_of({state_tensor::kind::parameter, state_tensor::kind::buffer,
                                    state_tensor::kind::counter}),
                  out);
  return out;
}

} // namespace waggle
