#pragma once

#include <compare>
#include <cstdint>

#include "runtime/core/ids.hpp"

namespace waggle {

/// The history (sequence of epochs) that a state belongs to.
///
/// A run has one history as long as each epoch is decided by a quorum of the members that decided
/// the one before. Where a smaller part goes on by itself (a network split, a restart from
/// checkpoints), it begins a branch with a name of its own, so that two peers at the same epoch of
/// the same branch hold the same parameters, and a fork can be detected.
struct history {
  digest branch;      // the name of this branch; zero: no state of any run yet
  digest parent;      // the branch that this one forked from; zero: none, it is the run's start
  epoch_id forked_at; // the epoch of the fork
  /// Over all epochs since the run's start, those of the parent branches included: samples times
  /// contributors. Work before a fork counts for both branches, so the difference of two branches
  /// is their work since the fork.
  std::uint64_t work = 0;
  /// Optimizer steps of all peers since the run's start, as rounds have counted them
  /// (runtime/training/step_count.hpp); 0 with strategies that do not count them.
  std::uint64_t steps = 0;

  friend bool operator==(const history&, const history&) = default;
};

} // namespace waggle
