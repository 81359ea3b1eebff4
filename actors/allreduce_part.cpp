#include "actors/allreduce_part.hpp"

#include "actors/guard.hpp"

namespace waggle {

allreduce_part_actor::behavior_type
allreduce_part(allreduce_part_actor::stateful_pointer<allreduce_part_state> self,
               node_context ctx) {
  end_on_exception(self, ctx);
  return {[](const reduce_part& msg) { msg.work(); }};
}

} // namespace waggle
