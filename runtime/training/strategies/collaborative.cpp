#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

strategy collaborative(std::uint64_t target_batch) {
  lane gradients;
  gradients.what = lane_content::gradient;
  gradients.due = {lane_clock::unit::swarm_samples, target_batch};
  return {gradients};
}

strategy delayed_gradients(std::uint64_t target_batch) {
  auto result = collaborative(target_batch);
  result.averages.overlap.ends = lane_overlap::until::next_boundary;
  return result;
}

namespace {

strategy make(const strategy_settings& s) {
  auto made = s.delay_gradients ? delayed_gradients(s.target_batch) : collaborative(s.target_batch);
  made.averages.coding = s.coding;
  return made;
}

} // namespace

const strategy_row strategies::collaborative{
  "collaborative", "Gradients are averaged every --target-batch-size samples of the swarm.", make};

} // namespace waggle
