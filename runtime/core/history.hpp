#pragma once

#include <compare>
#include <cstdint>

#include "runtime/core/ids.hpp"

namespace waggle {

/// Which line of epochs a state belongs to.
///
/// A run has one history as long as each epoch is decided by a quorum of those who decided the one
/// before. Where a smaller part goes on by itself (a network split, a restart from checkpoints), it
/// begins a branch with a name of its own, so that two peers at the same epoch of the same branch
/// hold the same parameters, and a fork is seen as such.
struct history {
  digest branch;      // this line's name; zero: no state of any run yet
  digest parent;      // the branch that this one left; zero: none, it is the run's start
  epoch_id forked_at; // the epoch at which it left it
  /// Over all epochs since the run's start, parents' included: samples times contributors. What two
  /// branches did before they parted counts for both, so the difference is what each did since.
  std::uint64_t work = 0;

  friend bool operator==(const history&, const history&) = default;
};

} // namespace waggle
