#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

/// Kademlia's iterative lookup of one key, as a state machine: query the peers that `next` returns,
/// report their answers and failures, and stop when `finished` is true.
///
/// Results contain only peers that answered: a peer that fails is removed from the frontier, and
/// the next nearest one is queried instead. Not thread-safe.
class lookup {
public:
  struct options {
    std::size_t beam = 20;        // how many of the nearest peers have to answer
    std::size_t workers = 4;      // concurrent queries
    std::size_t known_max = 1024; // bounds the memory that Byzantine peers can make us use
  };

  lookup(const dht_id& target, const peer_id& self, options opts,
         const std::vector<peer_record>& seeds);

  /// Peers to query now; they count as queried. Empty while enough answers are pending, or when
  /// finished.
  std::vector<peer_record> next();

  void answered(const peer_id& peer, const std::vector<peer_record>& nearest);
  void failed(const peer_id& peer);

  /// True once the `beam` nearest reachable peers have answered, or no peer is left to query.
  [[nodiscard]] bool finished() const;

  /// Up to `k` peers that answered, ascending distance.
  [[nodiscard]] std::vector<peer_record> nearest(std::size_t k) const;
  /// Depth of the lookup: how many rounds of queries the deepest answer took.
  [[nodiscard]] unsigned hops() const { return hops_; }

private:
  enum class state : std::uint8_t { known, asked, answered, failed };
  struct candidate {
    peer_record peer;
    state now = state::known;
    unsigned depth = 0;
  };

  void learn(const peer_record& peer, unsigned depth);
  /// The nearest candidate not queried yet, if it can still change the result.
  [[nodiscard]] std::optional<dht_distance> next_viable() const;

  dht_id target_;
  peer_id self_;
  options options_;
  std::map<dht_distance, candidate> candidates_; // distances are distinct because ids are
  std::size_t pending_ = 0;
  unsigned hops_ = 0;
};

} // namespace waggle
