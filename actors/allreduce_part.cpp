#include "actors/allreduce_part.hpp"

#include "actors/guard.hpp"

namespace waggle {

allreduce_part::allreduce_part(caf::actor_config& cfg, const node_context& ctx)
  : allreduce_part_actor::base(cfg) {
  end_on_exception(this, ctx);
}

allreduce_part::behavior_type allreduce_part::make_behavior() {
  return {[](const reduce_part& msg) { msg.work(); }};
}

} // namespace waggle
