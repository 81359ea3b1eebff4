#include "runtime/progress/evidence.hpp"

#include <algorithm>

namespace waggle {

void evidence::on_round(const std::vector<peer_id>& peers) {
  ++rounds_;
  for (const auto& peer : peers) {
    auto& known = peers_[peer];
    known.last = rounds_;
    ++known.rounds;
    if (peers_.size() > peers_max)
      peers_.erase(std::ranges::min_element(
        peers_, [](const auto& a, const auto& b) { return a.second.last < b.second.last; }));
  }
}

bool evidence::covers(const peer_id& peer) const {
  auto known = peers_.find(peer);
  return known != peers_.end() && known->second.rounds >= rounds_min;
}

} // namespace waggle
