#pragma once

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

/// Computes the sums that rounds pass to it, one after another, on the actor system's threads. A
/// peer has averaging_config::part_workers of these actors, for sums that run at the same time.
class allreduce_part final : public allreduce_part_actor::base {
public:
  allreduce_part(caf::actor_config& cfg, const node_context& ctx);

  const char* name() const override { return "allreduce-part"; }

protected:
  behavior_type make_behavior() override;
};

} // namespace waggle
