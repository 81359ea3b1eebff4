#include "actors/averaging/compute_worker.hpp"

#include "actors/guard.hpp"

namespace waggle {

compute_worker::compute_worker(caf::actor_config& cfg, const node_context& ctx)
  : compute_worker_actor::base(cfg) {
  end_on_exception(this, ctx);
}

compute_worker::behavior_type compute_worker::make_behavior() {
  return {[](const run_job& what) { return job_done{what.job()}; }};
}

} // namespace waggle
