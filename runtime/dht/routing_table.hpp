#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/random.hpp"
#include "runtime/core/time.hpp"
#include "runtime/dht/record.hpp"

namespace waggle {

/// Distance in the DHT: XOR, compared like a big-endian unsigned integer (spec/dht.md §1.2).
struct dht_distance {
  std::array<std::byte, 32> bytes{};
  friend auto operator<=>(const dht_distance&, const dht_distance&) = default;
};
dht_distance distance(const dht_id& a, const dht_id& b);
inline dht_distance distance(const dht_id& a, const peer_id& b) {
  return distance(a, dht_id_of(b));
}

/// Leading bits that all ids share; 256 for one id or none.
std::size_t common_prefix_bits(const std::vector<dht_id>& ids);

/// Orders peers by distance to `target`, nearest first, and keeps the first `k`.
void sort_nearest(const dht_id& target, std::vector<peer_record>& peers, std::size_t k);

struct routing_options {
  std::size_t bucket_size = 20; // k: active peers a bucket, and replacements a bucket
  std::size_t depth_modulo = 5; // b: buckets off our own path split until their depth divides by it
  unsigned strikes_max = 2;     // failures in a row until a peer is dropped
  milliseconds failure_window{10'000}; // see `suspended`
};

/// The peers that we know, in k-buckets (Kademlia §2.2, §2.4; spec/dht.md §1.3–1.5). Holds no peer
/// in client mode, never ourselves. Not thread-safe.
///
/// Invariants: buckets are sorted by range, disjoint, and cover the space; a bucket holds at most
/// `bucket_size` active peers, oldest news first, and as many replacements.
class routing_table {
public:
  routing_table(const peer_id& self, routing_options options, steady_time now);

  /// News from `peer`. Returns a peer to ping if its bucket is full: if that one does not answer
  /// (`failed`), the newcomer may take its place.
  std::optional<peer_record> seen(const peer_record& peer, steady_time now);

  /// A request to `peer` failed. It is dropped after `strikes_max` failures in a row, and the
  /// newest replacement takes its place; but not while most peers fail, which means that the
  /// network of this machine is down (spec/dht.md §1.5 [REQ]).
  void failed(const peer_id& peer, steady_time now);
  /// It left: dropped at once.
  void remove(const peer_id& peer);

  /// Up to `k` active peers by ascending distance to `target`, without `exclude`.
  [[nodiscard]] std::vector<peer_record> nearest(const dht_id& target, std::size_t k,
                                                 const peer_id& exclude = {}) const;
  [[nodiscard]] std::optional<peer_record> find(const peer_id& peer) const;

  /// A random id in the range of each bucket without news since `before`.
  [[nodiscard]] std::vector<dht_id> stale_targets(steady_time before, random_source& random) const;

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t replacements() const;
  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }
  /// True while more than half of the peers asked within the failure window failed.
  [[nodiscard]] bool suspended(steady_time now) const;

private:
  struct entry {
    peer_record peer;
    unsigned strikes = 0;
    bool pinging = false; // offered to the caller as the one to ping
  };
  struct bucket {
    dht_id lower;                   // first id of the range
    std::size_t depth = 0;          // the range has 2^(256 − depth) ids
    std::deque<entry> active;       // oldest news first
    std::deque<entry> replacements; // oldest news first
    steady_time updated{};
  };

  [[nodiscard]] std::size_t bucket_of(const dht_id& id) const;
  [[nodiscard]] bool may_split(const bucket& b) const;
  void split(std::size_t index);

  peer_id self_;
  routing_options options_;
  std::vector<bucket> buckets_;
  // Bounded: entries leave after failure_window.
  std::map<peer_id, std::pair<steady_time, bool>> recent_; // peer → last outcome (failed?)
};

} // namespace waggle
