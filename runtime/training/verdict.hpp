#pragma once

#include <cstdint>

#include "runtime/training/strategy.hpp"

namespace waggle {

/// What a peer knows of a round of a lane once it is over.
struct round_facts {
  std::uint32_t contributors = 0; // to the mean; 0: there is none
  bool excluded = false;          // the others have a mean, without us
  bool run_moved_on = false;      // the run is at a later epoch than the round's
  bool others_remain = false;     // somebody else could still take part in another try
  bool time_left = false;         // for another try
  std::uint64_t own_samples = 0;  // that we gave to the round
};

/// What the end of a round means for its lane.
enum class verdict : std::uint8_t {
  merge,        // the mean counts
  retry,        // not over: try again with those that remain, with the same contribution
  own_gradient, // an optimizer step with the own mean gradient of this epoch (INV-6)
  left_out,     // the run went on without us: our samples are dropped, we take its state
  skip,         // as if it had not been due; for gradients: the epoch goes on
};

/// Only a peer that can still hold what most others hold steps with its own gradient: once the
/// others have gone on without it, it never steps by itself.
verdict on_round(const lane& lane, const round_facts& round);

} // namespace waggle
