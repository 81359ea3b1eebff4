#pragma once

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

/// Computes the vectors of a two_round_coding, one after another, on a thread of its own: the
/// group_averager spawns it detached, so that products of matrices delay no other actor.
class coding_worker final : public coding_worker_actor::base {
public:
  coding_worker(caf::actor_config& cfg, const node_context& ctx);

  const char* name() const override { return "coding-worker"; }

protected:
  behavior_type make_behavior() override;
};

} // namespace waggle
