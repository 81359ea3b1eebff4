#include "runtime/training/verdict.hpp"

#include <algorithm>

namespace waggle {

verdict on_round(const lane& lane, const round_facts& round) {
  if (round.contributors
      >= std::max(lane.quorum, 1U)) // without contributors there is no mean (INV-4)
    return verdict::merge;
  // Averaged parameters differ between peers anyway: only one round was lost.
  bool others_are_ahead = round.excluded || round.run_moved_on;
  if (others_are_ahead && lane.what != lane_content::parameters)
    return verdict::left_out;
  switch (lane.on_failure) {
    case failure_rule::own_gradient:
      if (round.others_remain && round.time_left)
        return verdict::retry;
      return round.own_samples > 0 ? verdict::own_gradient : verdict::skip;
    case failure_rule::skip:
      return verdict::skip;
  }
  return verdict::skip;
}

} // namespace waggle
