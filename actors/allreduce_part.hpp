#pragma once

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

/// Does the sums that rounds pass to it, one after the other, on the actor system's threads. A peer
/// has as many of these as there are sums worth doing at once.
class allreduce_part final : public allreduce_part_actor::base {
public:
  allreduce_part(caf::actor_config& cfg, const node_context& ctx);

  const char* name() const override { return "allreduce-part"; }

protected:
  behavior_type make_behavior() override;
};

} // namespace waggle
