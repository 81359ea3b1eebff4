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

constexpr std::string_view options[]{"target-batch-size",  "passes",
                                     "low-rank",           "delay-grad-averaging",
                                     "reuse-grad-buffers", "delay-optimizer-step"};

} // namespace

const strategy_row strategies::collaborative{
  .name = "collaborative",
  .help = "Gradients are averaged every --target-batch-size samples of the swarm.",
  .make = make,
  .rounds =
    "averages gradients every --target-batch-size samples, and all peers make the same step",
  .options = options};

} // namespace waggle
