#pragma once

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/guard.hpp"
#include "actors/node_context.hpp"

namespace waggle {

/// Computes what it is sent, one job after another, on a thread of its own: its owner spawns it
/// detached, so that long sums and products of matrices delay neither the network nor other actors.
class compute_worker final : public compute_worker_actor::base {
public:
  compute_worker(caf::actor_config& cfg, const node_context& ctx)
    : compute_worker_actor::base(cfg) {
    end_on_exception(this, ctx);
  }

  const char* name() const override { return "compute-worker"; }

protected:
  behavior_type make_behavior() override {
    return {[](const run_job& what) { return job_done{what.job()}; }};
  }
};

} // namespace waggle
