#pragma once

#include <cstdint>
#include <memory>

#include "runtime/agreement/run_agreement.hpp"

namespace waggle::net {

struct peer_claims {
  /// Drawn when its process started; 0: not announced. Two different numbers for one identity are
  /// two processes, consecutive or concurrent.
  std::uint64_t instance = 0;
  /// Null: it has none, because it neither trains nor averages.
  std::shared_ptr<const run_agreement> agreement;
  /// It asks, and joins nothing (waggle doctor): nobody is told of it, and of what it is refused.
  bool looks = false;
};

} // namespace waggle::net
