#pragma once

#include <cstdint>
#include <memory>

#include "runtime/agreement/run_agreement.hpp"

namespace waggle::net {

/// What a peer says of itself in the handshake, beside who it is and where it listens.
struct peer_claims {
  /// Drawn when its process began; 0: it does not say. Two numbers of one identity are two
  /// processes, one after the other or side by side.
  std::uint64_t instance = 0;
  /// Null: it has none, as a peer that neither trains nor averages.
  std::shared_ptr<const run_agreement> agreement;
};

} // namespace waggle::net
