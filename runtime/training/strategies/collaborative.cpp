#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

/// All peers wait for the mean (the default of hivemind's Optimizer), or train on while a round
/// runs, and use its mean at the next boundary (`delay_grad_averaging`).
strategy make(const strategy_settings& s) {
  lane gradients;
  gradients.due = {lane_clock::unit::swarm_samples, s.target_batch};
  if (s.delay_gradients)
    gradients.overlap.ends = lane_overlap::until::next_boundary;
  gradients.coding = s.coding;
  return {gradients};
}

} // namespace

const strategy_row strategies::collaborative{
  "collaborative", "Gradients are averaged every --target-batch-size samples of the swarm.", make};

} // namespace waggle
