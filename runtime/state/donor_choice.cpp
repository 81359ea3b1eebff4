#include "runtime/state/donor_choice.hpp"

#include <algorithm>

namespace waggle {

std::vector<peer_record> donor_choice::among(std::vector<peer_record> donors) {
  auto refused = [this](const peer_record& donor) { return refused_.contains(donor.id); };
  if (std::all_of(donors.begin(), donors.end(), refused))
    refused_.clear(); // all were refused: ask them again
  std::erase_if(donors, refused);
  return donors;
}

void donor_choice::succeeded() {
  refused_.clear();
  pause_ = milliseconds{0};
}

milliseconds donor_choice::failed() {
  return pause_ = std::clamp(2 * pause_, pause_min, pause_max);
}

} // namespace waggle
