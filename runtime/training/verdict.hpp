#pragma once

#include <cstdint>

#include "runtime/training/strategy.hpp"

namespace waggle {

/// What a peer knows about a round when it is over.
struct round_facts {
  std::uint32_t contributors = 0; // to the mean; 0: there is no mean
  bool excluded = false;          // the others have a mean that excludes us
  bool run_moved_on = false;      // the run is at a later epoch than the round's
  bool others_remain = false;     // another peer could still take part in a retry
  bool time_left = false;         // for a retry
  std::uint64_t own_samples = 0;  // that we contributed to the round
};

/// What the end of a round means.
enum class verdict : std::uint8_t {
  merge,        // use the mean
  retry,        // not over: try again with the remaining members and the same contribution
  own_gradient, // an optimizer step with the own mean gradient of this epoch (INV-6)
  left_out,     // the run continued without us: our samples are dropped, we download its state
  skip,         // as if it had not been due; for gradients: the epoch goes on
};

/// A peer steps with its own gradient only if it may still hold the same state as most others: once
/// the others have continued without it, it never steps alone.
verdict on_round(lane_content averaged, const round_facts& round);

} // namespace waggle
