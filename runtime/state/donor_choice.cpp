#include "runtime/state/donor_choice.hpp"

#include <algorithm>

namespace waggle {

std::vector<peer_record> donor_choice::among(std::vector<peer_record> donors,
                                             steady_time now) const {
  auto refused = [&](const peer_record& donor) { return refused_.holds(donor.id, now); };
  if (!std::all_of(donors.begin(), donors.end(), refused)) // otherwise ask them again
    std::erase_if(donors, refused);
  std::stable_partition(donors.begin(), donors.end(),
                        [&](const peer_record& donor) { return !slow_.holds(donor.id, now); });
  return donors;
}

milliseconds donor_choice::succeeded(steady_time now) {
  bool repeated = accepted_ && now - *accepted_ < repeated_within;
  repeated_pause_ =
    repeated ? std::clamp(2 * repeated_pause_, pause_min, pause_max) : milliseconds{0};
  accepted_ = now;
  pause_ = milliseconds{0};
  return repeated_pause_;
}

milliseconds donor_choice::failed() {
  return pause_ = std::clamp(2 * pause_, pause_min, pause_max);
}

} // namespace waggle
