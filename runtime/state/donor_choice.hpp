#pragma once

#include <set>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Whom to ask for the run's state, and how soon after an attempt that failed. A donor whose state
/// was refused is passed over until a state was taken or nobody else is left. Not thread-safe.
class donor_choice {
public:
  static constexpr milliseconds pause_min{500};
  static constexpr milliseconds pause_max{8'000};

  /// Those of `donors` to ask now, in their order; empty only if `donors` is.
  [[nodiscard]] std::vector<peer_record> among(std::vector<peer_record> donors);
  /// What this donor gave could not be used.
  void refuse(const peer_id& donor) { refused_.insert(donor); }
  /// A state was taken.
  void succeeded();
  /// The attempt is over without a state. Returns how long to wait before the next one: twice as
  /// long as the last time, within the bounds above.
  [[nodiscard]] milliseconds failed();

private:
  std::set<peer_id> refused_; // since a state was last taken; each cost it a whole transfer
  milliseconds pause_{0};
};

} // namespace waggle
