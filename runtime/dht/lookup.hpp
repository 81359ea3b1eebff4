#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

/// Whom to ask next for one key: Kademlia's iterative lookup (spec/dht.md §2.5) as a state machine.
/// Give it answers and failures; ask the peers it names; stop when it is finished.
///
/// Results hold only peers that answered [REQ]: a peer that fails leaves the frontier, and the
/// search widens to the next one. Not thread-safe.
class lookup {
public:
  struct options {
    std::size_t beam = 20;        // how many of the nearest peers have to answer
    std::size_t workers = 4;      // asked at once
    std::size_t known_max = 1024; // bounds what lying peers can make us remember
  };

  lookup(const dht_id& target, const peer_id& self, options opts,
         const std::vector<peer_record>& seeds);

  /// Peers to ask now; they count as asked. Empty while enough answers are pending, or finished.
  std::vector<peer_record> next();

  void answered(const peer_id& peer, const std::vector<peer_record>& nearest);
  void failed(const peer_id& peer);

  /// True once the `beam` nearest peers that can be reached have answered, or nobody is left to
  /// ask.
  [[nodiscard]] bool finished() const;

  /// Up to `k` peers that answered, ascending distance.
  [[nodiscard]] std::vector<peer_record> nearest(std::size_t k) const;
  /// Rounds of asking that the deepest answer took.
  [[nodiscard]] unsigned hops() const { return hops_; }

private:
  enum class state : std::uint8_t { known, asked, answered, failed };
  struct candidate {
    peer_record peer;
    state now = state::known;
    unsigned depth = 0;
  };

  void learn(const peer_record& peer, unsigned depth);
  /// The nearest candidate that nobody asked, if it may still matter.
  [[nodiscard]] std::optional<dht_distance> next_viable() const;

  dht_id target_;
  peer_id self_;
  options options_;
  std::map<dht_distance, candidate> candidates_; // distances are distinct as ids are
  std::size_t pending_ = 0;
  unsigned hops_ = 0;
};

} // namespace waggle
