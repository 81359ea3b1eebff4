#pragma once

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

struct allreduce_part_state {
  static inline const char* name = "allreduce-part";
};

/// Does the sums that rounds hand over, one after the other, on the actor system's threads. A peer
/// has as many of these as sums are worth doing at once.
allreduce_part_actor::behavior_type
allreduce_part(allreduce_part_actor::stateful_pointer<allreduce_part_state> self, node_context ctx);

} // namespace waggle
