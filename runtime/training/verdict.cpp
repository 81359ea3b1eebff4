#include "runtime/training/verdict.hpp"

namespace waggle {

verdict on_round(lane_content averaged, const round_facts& round) {
  if (round.contributors > 0) // otherwise there is no mean (INV-4)
    return verdict::merge;
  // Averaged parameters differ between peers anyway: only one round was lost.
  if (averaged == lane_content::parameters)
    return verdict::skip;
  if (round.excluded || round.run_moved_on)
    return verdict::left_out;
  if (round.others_remain && round.time_left)
    return verdict::retry;
  return round.own_samples > 0 ? verdict::own_gradient : verdict::skip;
}

} // namespace waggle
