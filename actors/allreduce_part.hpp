#pragma once

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

struct allreduce_part_state {
  static inline const char* name = "allreduce-part";
};

/// Computes the sums that rounds offload, one after the other, on the actor system's threads. A
/// peer has one such actor per sum that may run at the same time.
allreduce_part_actor::behavior_type
allreduce_part(allreduce_part_actor::stateful_pointer<allreduce_part_state> self, node_context ctx);

} // namespace waggle
