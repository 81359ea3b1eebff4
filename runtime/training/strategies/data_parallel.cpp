#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

/// An update takes as long as the slowest member's pass and a round of one vector of parameters.
/// A member that is silent is waited for once (pass_barrier.hpp).
strategy make(const strategy_settings& s) {
  auto made = collaborative(1);
  auto& gradients = made.averages;
  gradients.due.counts = lane_clock::unit::each_member;
  if (s.delay_gradients)
    gradients.overlap.ends = lane_overlap::until::next_boundary;
  gradients.coding = s.coding;
  return made;
}

} // namespace

const strategy_row strategies::data_parallel{
  .name = "data-parallel",
  .help = "Gradients are averaged after one pass of every peer.",
  .make = make,
  .counts_steps = true};

} // namespace waggle
