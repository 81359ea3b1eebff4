#include "runtime/dht/lookup.hpp"

namespace waggle {

lookup::lookup(const dht_id& target, const peer_id& self, options opts,
               const std::vector<peer_record>& seeds)
  : target_(target), self_(self), options_(opts) {
  for (const auto& peer : seeds)
    learn(peer, 1);
}

void lookup::learn(const peer_record& peer, unsigned depth) {
  if (peer.id == self_ || peer.client_mode || peer.addresses.empty())
    return;
  candidates_.try_emplace(distance(target_, peer.id), candidate{peer, state::known, depth});
  if (candidates_.size() > options_.known_max) {
    auto farthest = std::prev(candidates_.end());
    if (farthest->second.now == state::known)
      candidates_.erase(farthest);
  }
}

std::optional<dht_distance> lookup::next_viable() const {
  std::size_t nearer = 0; // nearer candidates that answered or still may
  for (const auto& [d, c] : candidates_) {
    if (nearer >= options_.beam)
      break;
    if (c.now == state::known)
      return d;
    if (c.now != state::failed)
      ++nearer;
  }
  return std::nullopt;
}

std::vector<peer_record> lookup::next() {
  std::vector<peer_record> out;
  while (pending_ < options_.workers) {
    auto nearest = next_viable();
    if (!nearest)
      break;
    auto& found = candidates_.at(*nearest);
    found.now = state::asked;
    ++pending_;
    out.push_back(found.peer);
  }
  return out;
}

void lookup::answered(const peer_id& peer, const std::vector<peer_record>& nearest) {
  auto it = candidates_.find(distance(target_, peer));
  if (it == candidates_.end() || it->second.now != state::asked)
    return;
  it->second.now = state::answered;
  --pending_;
  hops_ = std::max(hops_, it->second.depth);
  auto depth = it->second.depth + 1;
  for (const auto& found : nearest)
    learn(found, depth);
}

void lookup::failed(const peer_id& peer) {
  auto it = candidates_.find(distance(target_, peer));
  if (it == candidates_.end() || it->second.now != state::asked)
    return;
  it->second.now = state::failed;
  --pending_;
}

bool lookup::finished() const {
  // A query that is pending, or still to be made, matters only if its peer may be among the
  // nearest.
  std::size_t answered = 0;
  for (const auto& [d, c] : candidates_) {
    if (c.now == state::asked || c.now == state::known)
      return false;
    if (c.now == state::answered && ++answered >= options_.beam)
      return true;
  }
  return true;
}

std::vector<peer_record> lookup::nearest(std::size_t k) const {
  std::vector<peer_record> out;
  for (const auto& [d, c] : candidates_) {
    if (out.size() >= k)
      break;
    if (c.now == state::answered)
      out.push_back(c.peer);
  }
  return out;
}

} // namespace waggle
