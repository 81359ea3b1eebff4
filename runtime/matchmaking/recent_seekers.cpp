#include "runtime/matchmaking/recent_seekers.hpp"

namespace waggle {

void recent_seekers::remember(const peer_id& peer, const digest& schema, const std::string& bucket,
                              swarm_time expiration, steady_time now) {
  std::erase_if(wishes_, [&](const auto& entry) { return now - entry.second.when > memory; });
  if (wishes_.size() < peers_max || wishes_.contains(peer))
    wishes_.insert_or_assign(peer, wish{schema, bucket, expiration, now});
}

std::vector<peer_id> recent_seekers::wanting(const digest& schema, const std::string& bucket,
                                             steady_time now) const {
  std::vector<peer_id> found;
  for (const auto& [peer, wish] : wishes_)
    if (wish.is(schema, bucket, now))
      found.push_back(peer);
  return found;
}

bool recent_seekers::contains(const peer_id& peer, steady_time now) const {
  auto found = wishes_.find(peer);
  return found != wishes_.end() && now - found->second.when <= memory;
}

std::optional<swarm_time> recent_seekers::expiration_of(const peer_id& peer, const digest& schema,
                                                        const std::string& bucket,
                                                        steady_time now) const {
  auto found = wishes_.find(peer);
  if (found == wishes_.end() || !found->second.is(schema, bucket, now))
    return std::nullopt;
  return found->second.expiration;
}

} // namespace waggle
