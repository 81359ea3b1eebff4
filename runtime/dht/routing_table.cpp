#include "runtime/dht/routing_table.hpp"

#include <algorithm>

namespace waggle {

namespace {

constexpr std::size_t id_bits = 256;

bool bit(const dht_id& id, std::size_t index) {
  return (std::to_integer<unsigned>(id.bytes[index / 8]) >> (7 - index % 8) & 1U) != 0;
}

bool in_range(const dht_id& id, const dht_id& lower, std::size_t depth) {
  for (std::size_t i = 0; i < depth; ++i)
    if (bit(id, i) != bit(lower, i))
      return false;
  return true;
}

template <class Entries>
auto find_peer(Entries& entries, const peer_id& id) {
  return std::ranges::find_if(entries, [&](const auto& e) { return e.peer.id == id; });
}

} // namespace

dht_distance distance(const dht_id& a, const dht_id& b) {
  dht_distance out;
  for (std::size_t i = 0; i < out.bytes.size(); ++i)
    out.bytes[i] = a.bytes[i] ^ b.bytes[i];
  return out;
}

void sort_nearest(const dht_id& target, std::vector<peer_record>& peers, std::size_t k) {
  auto nearer = [&](const peer_record& a, const peer_record& b) {
    return distance(target, a.id) < distance(target, b.id);
  };
  auto middle = peers.begin() + static_cast<std::ptrdiff_t>(std::min(k, peers.size()));
  std::partial_sort(peers.begin(), middle, peers.end(), nearer);
  peers.erase(middle, peers.end());
}

routing_table::routing_table(const peer_id& self, routing_options options, steady_time now)
  : self_(self), options_(options) {
  buckets_.push_back({{}, 0, {}, {}, now});
}

std::size_t routing_table::bucket_of(const dht_id& id) const {
  auto after = std::ranges::upper_bound(buckets_, id, {}, &bucket::lower);
  return static_cast<std::size_t>(after - buckets_.begin()) - 1;
}

bool routing_table::may_split(const bucket& b) const {
  return b.depth < id_bits
         && (in_range(dht_id_of(self_), b.lower, b.depth) || b.depth % options_.depth_modulo != 0);
}

void routing_table::split(std::size_t index) {
  auto whole = std::move(buckets_[index]);
  bucket low{whole.lower, whole.depth + 1, {}, {}, whole.updated};
  bucket high = low;
  // The middle id is the first of the upper half.
  high.lower.bytes[whole.depth / 8] |=
    std::byte{static_cast<unsigned char>(0x80U >> whole.depth % 8)};
  auto half_of = [&](const entry& e) -> bucket& {
    return bit(dht_id_of(e.peer.id), whole.depth) ? high : low;
  };
  for (auto& e : whole.active)
    half_of(e).active.push_back(std::move(e));
  for (auto& e : whole.replacements) {
    auto& half = half_of(e);
    auto& list = half.active.size() < options_.bucket_size ? half.active : half.replacements;
    list.push_back(std::move(e));
  }
  buckets_[index] = std::move(low);
  buckets_.insert(buckets_.begin() + static_cast<std::ptrdiff_t>(index) + 1, std::move(high));
}

std::optional<peer_record> routing_table::seen(const peer_record& peer, steady_time now) {
  if (peer.id == self_ || peer.client_mode || peer.addresses.empty())
    return std::nullopt;
  if (auto recent = recent_.find(peer.id); recent != recent_.end())
    recent->second = {now, false};
  const auto* before = find_entry(peer.id);
  entry fresh{peer, 0, false,
              before != nullptr && before->reached && before->peer.addresses == peer.addresses};
  for (;;) {
    auto index = bucket_of(dht_id_of(peer.id));
    auto& home = buckets_[index];
    home.updated = now;
    if (auto known = find_peer(home.active, peer.id); known != home.active.end()) {
      home.active.erase(known);
      home.active.push_back(std::move(fresh));
      return std::nullopt;
    }
    if (home.active.size() < options_.bucket_size) {
      if (auto waiting = find_peer(home.replacements, peer.id); waiting != home.replacements.end())
        home.replacements.erase(waiting);
      home.active.push_back(std::move(fresh));
      return std::nullopt;
    }
    if (may_split(home)) {
      split(index);
      continue;
    }
    if (auto waiting = find_peer(home.replacements, peer.id); waiting != home.replacements.end())
      home.replacements.erase(waiting);
    home.replacements.push_back(std::move(fresh));
    if (home.replacements.size() > options_.bucket_size)
      home.replacements.pop_front();
    for (auto& oldest : home.active)
      if (!oldest.pinging) {
        oldest.pinging = true;
        return oldest.peer;
      }
    return std::nullopt;
  }
}

void routing_table::reached(const peer_id& peer) {
  auto& home = buckets_[bucket_of(dht_id_of(peer))];
  if (auto known = find_peer(home.active, peer); known != home.active.end())
    known->reached = true;
  auto waiting = find_peer(home.replacements, peer);
  if (waiting == home.replacements.end())
    return;
  waiting->reached = true;
  auto other = std::ranges::find_if(home.active, [](const entry& e) { return !e.reached; });
  if (other != home.active.end())
    std::swap(*other, *waiting);
}

bool routing_table::is_reached(const peer_id& peer) const {
  const auto* known = find_entry(peer);
  return known != nullptr && known->reached;
}

bool routing_table::suspended(steady_time now) const {
  std::size_t asked = 0;
  std::size_t failures = 0;
  for (const auto& [peer, outcome] : recent_)
    if (now - outcome.first <= options_.failure_window) {
      ++asked;
      failures += outcome.second ? 1 : 0;
    }
  return failures >= 4 && 2 * failures > asked && 2 * failures > size();
}

void routing_table::failed(const peer_id& peer, steady_time now) {
  auto& home = buckets_[bucket_of(dht_id_of(peer))];
  if (auto waiting = find_peer(home.replacements, peer); waiting != home.replacements.end())
    home.replacements.erase(waiting);
  auto known = find_peer(home.active, peer);
  if (known == home.active.end())
    return;
  std::erase_if(
    recent_, [&](const auto& item) { return now - item.second.first > options_.failure_window; });
  recent_[peer] = {now, true};
  known->pinging = false;
  if (++known->strikes < options_.strikes_max || suspended(now))
    return;
  home.active.erase(known);
  if (!home.replacements.empty()) {
    home.active.push_back(std::move(home.replacements.back()));
    home.replacements.pop_back();
  }
}

void routing_table::remove(const peer_id& peer) {
  auto& home = buckets_[bucket_of(dht_id_of(peer))];
  std::erase_if(home.replacements, [&](const entry& e) { return e.peer.id == peer; });
  if (std::erase_if(home.active, [&](const entry& e) { return e.peer.id == peer; }) > 0
      && !home.replacements.empty()) {
    home.active.push_back(std::move(home.replacements.back()));
    home.replacements.pop_back();
  }
}

std::vector<peer_record> routing_table::nearest(const dht_id& target, std::size_t k,
                                                const peer_id& exclude, of which) const {
  // A table holds a few hundred peers, so a linear scan is fast enough.
  std::vector<peer_record> out;
  for (const auto& b : buckets_)
    for (const auto& e : b.active)
      if (e.peer.id != exclude && (which == of::all || e.reached))
        out.push_back(e.peer);
  sort_nearest(target, out, k);
  return out;
}

const routing_table::entry* routing_table::find_entry(const peer_id& peer) const {
  const auto& home = buckets_[bucket_of(dht_id_of(peer))];
  if (auto known = find_peer(home.active, peer); known != home.active.end())
    return &*known;
  auto waiting = find_peer(home.replacements, peer);
  return waiting == home.replacements.end() ? nullptr : &*waiting;
}

std::optional<peer_record> routing_table::find(const peer_id& peer) const {
  const auto* known = find_entry(peer);
  return known == nullptr ? std::nullopt : std::optional{known->peer};
}

std::vector<dht_id> routing_table::stale_targets(steady_time before, random_source& random) const {
  std::vector<dht_id> out;
  for (const auto& b : buckets_) {
    if (b.updated >= before)
      continue;
    dht_id target;
    random.fill(target.bytes);
    for (std::size_t i = 0; i < b.depth; ++i) {
      auto mask = std::byte{static_cast<unsigned char>(0x80U >> i % 8)};
      target.bytes[i / 8] = (target.bytes[i / 8] & ~mask) | (b.lower.bytes[i / 8] & mask);
    }
    out.push_back(target);
  }
  return out;
}

std::size_t routing_table::size() const {
  std::size_t n = 0;
  for (const auto& b : buckets_)
    n += b.active.size();
  return n;
}

std::size_t routing_table::replacements() const {
  std::size_t n = 0;
  for (const auto& b : buckets_)
    n += b.replacements.size();
  return n;
}

} // namespace waggle
