#pragma once

#include "runtime/progress/membership.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// What a user chooses of a trainer, and how it finds its group: membership::options.
struct training_options : membership::options {
  strategy_choice strategy = "collaborative";
  strategy_settings how;
  /// If parameters are averaged, how far this peer's move towards the mean of a round: x += alpha
  /// (mean − snapshot). More than 0, at most 1. Its own choice.
  double averaging_alpha = 1;
  /// The least time from one micro-step to the next, to leave computing time to other processes. 0:
  /// none.
  milliseconds step_interval{0};
  milliseconds averaging_timeout{60'000}; // of one round; then our own gradient is used
  milliseconds sync_timeout{600'000};     // of one download of the run's state
  /// The least time between two checkpoints: with short epochs, writing each one would cost more
  /// than it saves. A peer that was killed downloads what it missed from the others anyway.
  milliseconds checkpoint_interval{5'000};
  /// Passes go on while an update is applied (hivemind's `delay_optimizer_step`): their gradients
  /// may be one update late.
  bool delay_optimizer_step = false;
  /// Reduces for the others and applies their updates, but runs no passes.
  bool auxiliary = false;
};

} // namespace waggle
