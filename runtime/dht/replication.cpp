#include "runtime/dht/replication.hpp"

#include <algorithm>

namespace waggle {

namespace {

bool is_among_nearest(const dht_id& key, const peer_record& self,
                      const std::vector<peer_record>& others, std::size_t replicas) {
  auto ours = distance(key, self.id);
  auto nearer = std::ranges::count_if(
    others, [&](const peer_record& other) { return distance(key, other.id) < ours; });
  return !self.client_mode && static_cast<std::size_t>(nearer) < replicas;
}

} // namespace

replication::replication(const dht_id& key, const peer_record& self,
                         std::vector<peer_record> candidates, std::size_t replicas)
  : stored_here_(is_among_nearest(key, self, candidates, replicas)),
    left_(candidates.begin(), candidates.end()), wanted_(replicas) {
  if (stored_here_) {
    --wanted_;
    ++pending_;
  }
}

std::vector<peer_record> replication::next() {
  std::vector<peer_record> out;
  for (; wanted_ > 0 && !left_.empty(); --wanted_) {
    out.push_back(std::move(left_.front()));
    left_.pop_front();
    ++pending_;
  }
  return out;
}

void replication::answered(ec outcome) {
  --pending_;
  if (outcome == ec::none) {
    ++result_.accepted;
  } else {
    ++result_.rejected;
    result_.last_rejection = outcome;
  }
}

void replication::failed() {
  --pending_;
  ++result_.failed;
  ++wanted_;
}

void replication::give_up() {
  result_.failed += static_cast<std::uint32_t>(pending_);
  pending_ = 0;
  wanted_ = 0;
}

} // namespace waggle
