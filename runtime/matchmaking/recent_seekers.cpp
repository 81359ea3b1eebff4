#include "runtime/matchmaking/recent_seekers.hpp"

namespace waggle {

void recent_seekers::remember(const peer_id& peer, const digest& schema, const std::string& bucket,
                              steady_time now) {
  std::erase_if(wishes_, [&](const auto& entry) { return now - entry.second.when > memory; });
  if (wishes_.size() < peers_max || wishes_.contains(peer))
    wishes_.insert_or_assign(peer, wish{schema, bucket, now});
}

std::vector<peer_id> recent_seekers::wanting(const digest& schema, const std::string& bucket,
                                             steady_time now) const {
  std::vector<peer_id> found;
  for (const auto& [peer, wish] : wishes_)
    if (wish.schema == schema && wish.bucket == bucket && now - wish.when <= memory)
      found.push_back(peer);
  return found;
}

} // namespace waggle
