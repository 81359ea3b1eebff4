#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// How long a round waited for one member, as this peer saw it.
struct member_wait {
  peer_id peer;
  double seconds = 0; // beyond what the others took
  double others = 0;  // seconds: what they took, their median
  double weight = 0;  // of its contribution
};

/// So long, beyond what the others took, is a slow member awaited. A scheduler's pause or a packet
/// that was sent again is shorter.
constexpr milliseconds patience_with_slow{250};

/// Which members of an open group keep its rounds waiting for longer than they are worth.
///
/// A member that is always just in time costs the others a stall timeout and more in each round. So
/// whoever kept most of the last rounds waiting, for several times what the others took, is *slow*:
/// rounds wait for it no longer than patience_with_slow, and whoever is late again stays out for a
/// while (fault_memory). One late round makes nobody slow. Nor is anybody slow because all are: a
/// member is compared with the median of the others. Two members cannot tell which of them is slow.
///
/// **What it is worth.** Of samples that are worth p of an epoch's, the others would need 1 / (1 -
/// p) times as long for all of them. So a member saves them p / (1 - p) of the time between two
/// rounds, less the time that the rounds waited for it, and it is slow only if they waited for
/// longer. A distant member of a run with long epochs stays; p is its weight, which the others
/// added up.
///
/// Each peer judges for itself by what it saw, and rounds go on without a member only as they do
/// when it stalls: by a view that all agree on. Not thread-safe.
class patience {
public:
  /// A round was completed by all of these members, this peer included.
  /// @param period seconds since the round before it began here.
  void add(const std::vector<member_wait>& members, double period);
  /// The slow ones. Empty if they are half of the last round's members, or more.
  [[nodiscard]] std::vector<peer_id> slow() const;

  static constexpr std::size_t rounds_max = 6;
  static constexpr std::size_t late_rounds_min = 4; // of these
  static constexpr double several = 3;

private:
  struct sight {
    double waited = 0; // seconds
    double saved = 0;  // seconds
    bool late = false;
  };

  /// Of the members of the last round: whoever was left out begins anew.
  std::map<peer_id, std::deque<sight>> seen_;
};

} // namespace waggle
