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

/// Distance in the DHT: XOR, compared as a big-endian unsigned integer.
struct dht_distance {
  std::array<std::byte, 32> bytes{};
  friend auto operator<=>(const dht_distance&, const dht_distance&) = default;
};
dht_distance distance(const dht_id& a, const dht_id& b);
inline dht_distance distance(const dht_id& a, const peer_id& b) {
  return distance(a, dht_id_of(b));
}

/// Orders peers by distance to `target`, nearest first, and keeps the first `k`.
void sort_nearest(const dht_id& target, std::vector<peer_record>& peers, std::size_t k);

struct routing_options {
  std::size_t bucket_size = 20; // k: maximum of active peers, and of replacements, per bucket
  std::size_t depth_modulo = 5; // b: buckets off our own path split until b divides their depth
  unsigned strikes_max = 2;     // consecutive failures until a peer is dropped
  milliseconds failure_window{10'000}; // see `suspended`
};

/// The known peers, in k-buckets (Kademlia §2.2, §2.4). Contains neither peers in client mode nor
/// ourselves. A peer that only dialled us is of use to us over its link, but others may be told of
/// it only once somebody has reached it (`reached`); the dht_router tells those that it sees at the
/// same host before. Not thread-safe.
///
/// Invariants: buckets are sorted by range, disjoint, and cover the space; a bucket holds at most
/// `bucket_size` active peers, least recently seen first, and as many replacements.
class routing_table {
public:
  routing_table(const peer_id& self, routing_options options, steady_time now);

  /// A sign of life from `peer`. If its bucket is full, returns a peer to ping: if that one does
  /// not answer (`failed`), `peer` may take its place.
  std::optional<peer_record> seen(const peer_record& peer, steady_time now);

  /// `peer` answered at an address that it announces. This holds until it announces others. If its
  /// bucket is full, it takes the place of a peer that was not reached.
  void reached(const peer_id& peer);
  [[nodiscard]] bool is_reached(const peer_id& peer) const;

  /// A request to `peer` failed. After `strikes_max` consecutive failures it is dropped, and the
  /// newest replacement takes its place. No peer is dropped while most peers fail, because then the
  /// network of this machine is probably down.
  void failed(const peer_id& peer, steady_time now);
  /// The peer left: drops it at once.
  void remove(const peer_id& peer);

  enum class of : std::uint8_t { all, reached };
  /// Up to `k` active peers by ascending distance to `target`, without `exclude`.
  [[nodiscard]] std::vector<peer_record> nearest(const dht_id& target, std::size_t k,
                                                 const peer_id& exclude = {},
                                                 of which = of::all) const;
  [[nodiscard]] std::optional<peer_record> find(const peer_id& peer) const;

  /// A random id in the range of each bucket that was not updated since `before`.
  [[nodiscard]] std::vector<dht_id> stale_targets(steady_time before, random_source& random) const;

  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] std::size_t replacements() const;
  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }
  /// True while more than half of the table's peers that were queried within the failure window
  /// failed.
  [[nodiscard]] bool suspended(steady_time now) const;

private:
  struct entry {
    peer_record peer;
    unsigned strikes = 0;
    bool pinging = false; // returned to the caller as the peer to ping
    bool reached = false;
  };
  struct bucket {
    dht_id lower;                   // first id of the range
    std::size_t depth = 0;          // the range has 2^(256 − depth) ids
    std::deque<entry> active;       // least recently seen first
    std::deque<entry> replacements; // least recently seen first
    steady_time updated{};
  };

  [[nodiscard]] std::size_t bucket_of(const dht_id& id) const;
  [[nodiscard]] const entry* find_entry(const peer_id& peer) const;
  [[nodiscard]] bool may_split(const bucket& b) const;
  void split(std::size_t index);

  peer_id self_;
  routing_options options_;
  std::vector<bucket> buckets_;
  // Of peers that were in the table, and for failure_window only. Others are not counted: anybody
  // can name as many peers that do not answer as it likes.
  std::map<peer_id, std::pair<steady_time, bool>> recent_; // peer → last outcome (failed?)
};

} // namespace waggle
