#pragma once

#include <optional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/training/checkpoint_store.hpp"

namespace waggle {

/// Hashes copies of the state and writes checkpoints, so that neither delays a pass.
class state_keeper final : public state_keeper_actor::base {
public:
  state_keeper(caf::actor_config& cfg, node_context ctx,
               std::optional<checkpoint_store> checkpoints);

  const char* name() const override { return "state-keeper"; }

protected:
  behavior_type make_behavior() override;

private:
  caf::result<state_snapshot> complete(seal_copy& msg);

  const node_context ctx_;
  std::optional<checkpoint_store> checkpoints_;
};

} // namespace waggle
