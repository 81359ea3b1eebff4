#include "actors/averaging/coding_worker.hpp"

#include "actors/guard.hpp"

namespace waggle {

coding_worker::coding_worker(caf::actor_config& cfg, const node_context& ctx)
  : coding_worker_actor::base(cfg) {
  end_on_exception(this, ctx);
}

coding_worker::behavior_type coding_worker::make_behavior() {
  return {[](const code_vector& job) { return coded_vector{job.compute()}; }};
}

} // namespace waggle
