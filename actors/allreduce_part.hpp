#pragma once

#include <memory>
#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/averaging/part_reducer.hpp"

namespace waggle {

/// What a part is told at birth.
struct part_assignment {
  std::uint32_t index = 0;
  std::uint32_t elements = 0;
  codec_id codec = codec_id::none;
  /// `elements` floats of the round's result vector, which they keep alive. The first reduction
  /// goes there; it is being sent to others from then on, so later ones get memory of their own.
  std::shared_ptr<float> home;
};

/// Hears from the parts of its round.
using part_listener_actor =
  caf::typed_actor<caf::reacts_to<part_reduced>, caf::reacts_to<part_refused>>;

struct allreduce_part_state {
  static inline const char* name = "allreduce-part";

  std::optional<part_reducer> reducer;
  member_set wanted;  // reduce over these as soon as all are here; empty: done, or not asked yet
  member_set refused; // sent something that cannot be summed
  bool home_used = false;
};

/// Keeps what the members contribute to one part, and reduces it as often as the set of
/// contributors changes. Lives as long as its round.
allreduce_part_actor::behavior_type
allreduce_part(allreduce_part_actor::stateful_pointer<allreduce_part_state> self, node_context ctx,
               part_assignment assignment, part_listener_actor round);

} // namespace waggle
