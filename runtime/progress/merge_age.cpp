#include "runtime/progress/merge_age.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

void merge_age::merged(epoch_id epoch) {
  merged_ = epoch;
  before_.clear();
  averaging_.clear();
}

bool merge_age::is_outdated(epoch_id epoch, const others& now) {
  if (epoch.value() <= merged_.value() + tolerance_) {
    before_.clear();
    return false;
  }
  // Whoever was away may have had its work before.
  std::erase_if(before_, [&](const auto& item) { return !now.contains(item.first); });
  std::set<peer_id> grown;
  bool known_one = false;
  for (const auto& [who, peer] : now)
    if (auto first = before_.try_emplace(who, peer.work).first; peer.work > first->second) {
      grown.insert(who);
      known_one = known_one || peer.known;
    }
  bool know_some = std::ranges::any_of(now, [](const auto& item) { return item.second.known; });
  if (grown.size() < 2 || (know_some && !known_one))
    return false;
  before_.clear();
  averaging_ = std::move(grown);
  return true;
}

} // namespace waggle
