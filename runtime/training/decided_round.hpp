#pragma once

#include <vector>

#include "runtime/core/ids.hpp"

namespace waggle {

/// What all peers of an epoch know of the round that ended the one before.
struct decided_round {
  double weight = 0; // of all contributions together
  std::vector<peer_id>
    members; // that contributed, if only zeros, or have just entered; in one order
};

} // namespace waggle
