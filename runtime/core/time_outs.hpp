#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Peers that are not relied on for a while, because they did not deliver what they announced. The
/// time doubles with each further offence, and is as short as at first once a peer has gone
/// `forgiven_after` times its last time-out without one. Not thread-safe.
class time_outs {
public:
  struct limits {
    milliseconds first{1'000};
    milliseconds longest{600'000};
    std::size_t peers_max = 1'024; // ids can be made up: beyond this the one that ends first goes
  };
  static constexpr int forgiven_after = 4;

  explicit time_outs(limits how) : limits_(how) {}
  time_outs() : time_outs(limits{}) {}

  /// An offence of `peer`. Returns how long it is not relied on.
  milliseconds add(const peer_id& peer, steady_time now);
  [[nodiscard]] bool holds(const peer_id& peer, steady_time now) const;
  void forget(const peer_id& peer) { entries_.erase(peer); }
  /// The number of peers whose time-out has not ended.
  [[nodiscard]] std::size_t count(steady_time now) const;

private:
  struct entry {
    steady_time until;
    milliseconds lasts{0};
  };

  limits limits_;
  std::map<peer_id, entry> entries_;
};

} // namespace waggle
