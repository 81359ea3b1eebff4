#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/core/ids.hpp"

namespace waggle {

/// The peers that this one believes when peers claim different histories: those with which it has
/// completed a round; in a run with a list of members, those on it instead. An identity costs
/// nothing, and a claim costs a signature, but in a completed round a peer has done its part. More
/// than one round would keep a swarm apart that splits soon after its start: the sides would not
/// know each other (simulation_test, seed 21). Kept in memory only: after a restart this peer is
/// new. Not thread-safe.
class evidence {
public:
  /// The peers whose last round is longest ago are forgotten beyond this.
  static constexpr std::size_t peers_max = 1'024;

  /// @param listed whether a peer is on the list of members; empty: there is no list.
  explicit evidence(std::function<bool(const peer_id&)> listed = {}) : listed_(std::move(listed)) {}

  /// A round was completed by these peers, which may include ourselves.
  void on_round(const std::vector<peer_id>& peers) {
    ++rounds_;
    for (const auto& peer : peers) {
      last_[peer] = rounds_;
      if (last_.size() > peers_max)
        last_.erase(std::ranges::min_element(last_, {}, [](const auto& e) { return e.second; }));
    }
  }
  [[nodiscard]] bool covers(const peer_id& peer) const {
    return listed_ ? listed_(peer) : last_.contains(peer);
  }

private:
  std::function<bool(const peer_id&)> listed_;
  std::map<peer_id, std::uint64_t> last_; // the number of the last round with it
  std::uint64_t rounds_ = 0;
};

} // namespace waggle
