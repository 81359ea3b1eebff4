#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/ids.hpp"

namespace waggle {

/// The peers with which this one has completed rounds: what it goes by when peers claim different
/// histories. An identity costs nothing, and a claim costs a signature, but in a completed round a
/// peer has done its part. Kept in memory only: after a restart this peer is new. Not thread-safe.
class evidence {
public:
  /// A peer counts after so many rounds with it. More would keep a swarm apart that splits soon
  /// after its start: the sides would not know each other (simulation_test, seed 21).
  static constexpr std::uint64_t rounds_min = 1;
  /// The peers whose last round is longest ago are forgotten beyond this.
  static constexpr std::size_t peers_max = 1'024;

  /// A round was completed by these peers, which may include ourselves.
  void on_round(const std::vector<peer_id>& peers);
  [[nodiscard]] bool covers(const peer_id& peer) const;
  /// Peers that are remembered, those that do not count yet included.
  [[nodiscard]] std::size_t size() const { return peers_.size(); }

private:
  struct seen {
    std::uint64_t last = 0;   // the number of the last round with it
    std::uint64_t rounds = 0; // with it
  };
  std::map<peer_id, seen> peers_;
  std::uint64_t rounds_ = 0;
};

} // namespace waggle
