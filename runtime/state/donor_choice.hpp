#pragma once

#include <set>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Chooses the donors to ask for the run's state, and the pause after a failed attempt. A donor
/// whose state was refused is skipped until a state was accepted or no other donor is left. Not
/// thread-safe.
class donor_choice {
public:
  static constexpr milliseconds pause_min{500};
  static constexpr milliseconds pause_max{8'000};

  /// The subset of `donors` to ask now, in their order; empty only if `donors` is empty.
  [[nodiscard]] std::vector<peer_record> among(std::vector<peer_record> donors);
  /// The state from this donor could not be used.
  void refuse(const peer_id& donor) { refused_.insert(donor); }
  /// A state was accepted.
  void succeeded();
  /// The attempt ended without a state. Returns how long to wait before the next one: twice the
  /// last pause, within the bounds above.
  [[nodiscard]] milliseconds failed();

private:
  std::set<peer_id> refused_; // since a state was last accepted; each entry cost a full transfer
  milliseconds pause_{0};
};

} // namespace waggle
