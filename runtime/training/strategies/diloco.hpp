#pragma once

#include "runtime/training/learner_factory.hpp"

namespace waggle {

/// The numbers of the outer optimizer: SGD with momentum, whose gradient is the mean progress of
/// the peers (DiLoCo, arXiv:2311.08105).
struct outer_rule {
  double rate = 0.7;
  double momentum = 0.9; // 0: none is kept
  bool nesterov = true;
};

/// Makes learners of which the run shares an anchor: the parameters after the last outer step.
/// `make` makes local_learners, whose parameters θ are the peer's own and move with each pass.
///
/// - The parameters of the table are the anchor's, behind them the outer momentum
/// ("outer/momentum/w"
///   of w). The inner optimizer's statistics are those of the peer that wrote the state, and θ
///   itself is in no state.
/// - The gradient that is taken is the progress anchor − θ, between two steps. θ keeps what it
/// learns
///   after that: an update moves it by the new anchor minus its own copy (INV-5).
/// - With mean Δ: v ← momentum · v + Δ; anchor ← anchor − rate · (Δ + momentum · v), or − rate · v
///   without Nesterov. A peer alone, at rate 1 and without momentum, takes its copy of θ as it is.
/// - A state that is loaded moves θ by the difference of the anchors, so that progress stays; a
///   gradient that is dropped makes θ the anchor.
///
/// Fails with ec::bad_config if the learners of `make` cannot step locally.
learner_factory with_anchor(learner_factory make, const outer_rule& rule);

} // namespace waggle
