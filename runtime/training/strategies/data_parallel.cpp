#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

constexpr named_number numbers[] = {{"buckets", named_number::form::whole, 0, 1, 0.0}};

constexpr std::string_view options[]{"passes", "low-rank", "delay-grad-averaging",
                                     "reuse-grad-buffers", "delay-optimizer-step"};

/// An update takes as long as the slowest member's pass and a round of one vector of parameters.
/// A member that is silent is waited for once (pass_barrier.hpp). With `buckets`, the round begins
/// in the last 200 ms of the pass, and what is sent by the end of the pass is saved. The bytes are
/// the same; all peers agree on it like on other numbers, because a round then lasts for so long.
strategy make(const strategy_settings& s) {
  lane gradients;
  gradients.due = {lane_clock::unit::each_member, 1};
  if (s.delay_gradients)
    gradients.overlap.ends = lane_overlap::until::next_boundary;
  gradients.coding = s.coding;
  gradients.in_buckets = strategies::data_parallel.number(s, "buckets") != 0;
  return {gradients};
}

} // namespace

const strategy_row strategies::data_parallel{
  .name = "data-parallel",
  .help =
    "Gradients are averaged after one pass of every peer; `buckets`: 1 sends those of the last "
    "layers while the pass computes those of the first.",
  .make = make,
  .rounds = "averages gradients after each pass of --micro-batch samples, and all peers make the "
            "same step",
  .options = options,
  .numbers = numbers};

} // namespace waggle
