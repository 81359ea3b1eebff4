#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

/// When an address that a peer announced may be dialled. Records of strangers may name any number
/// of peers and addresses, also those of hosts that have nothing to do with the run. So attempts
/// are limited, and an address that fails for one peer is not tried at once for others that claim
/// it. Not thread-safe.
class dial_limits {
public:
  struct options {
    std::size_t attempts_max = 64; // at once, and begun per second
    /// For how long an address that failed is not tried for other peers.
    milliseconds pause{5'000};
    /// The same if a peer answered that was not expected: another one may live there.
    milliseconds pause_of_peers{1'000};
    std::size_t addresses_max = 1'024; // that are remembered
  };

  explicit dial_limits(options opts) : options_(opts) {}

  /// As many attempts as possible are under way, or were begun within the last second.
  [[nodiscard]] bool exhausted(steady_time now);
  /// The address is being dialled for another peer: its outcome is worth waiting for.
  [[nodiscard]] bool taken(const endpoint& where, const peer_id& whose) const;
  /// Why it failed for another peer lately.
  [[nodiscard]] std::optional<failure> failed_lately(const endpoint& where, const peer_id& whose,
                                                     steady_time now) const;

  /// An attempt begins. `whose`: zero if that is not known; such an attempt is only counted.
  void begin(const endpoint& where, const peer_id& whose, steady_time now);
  /// It has ended; ec::none: with a link.
  void end(const endpoint& where, const failure& why, steady_time now);

private:
  struct entry {
    peer_id whose;
    std::size_t under_way = 0;
    failure why;           // of the last attempt; ec::none: no failure
    steady_time not_until; // for other peers
  };

  [[nodiscard]] static bool is_of_another(const entry& address, const peer_id& whose);
  void forget(steady_time now);

  options options_;
  std::map<endpoint, entry> addresses_;
  std::size_t under_way_ = 0;
  std::deque<steady_time> begun_; // within the last second
};

} // namespace waggle::net
