#pragma once

#include <functional>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"

namespace waggle {

/// Reduces the parts that a round sends to it, one after another, on a thread of its own: the
/// averager spawns it detached, so that a long sum delays neither the network nor other actors.
class part_worker final : public part_worker_actor::base {
public:
  using kernel = std::function<reduced_part(const reduce_part&)>;

  /// @param sum replaces the computation in benchmarks and tests.
  part_worker(caf::actor_config& cfg, const node_context& ctx, kernel sum = reduce);

  const char* name() const override { return "part-worker"; }

protected:
  behavior_type make_behavior() override;

private:
  const kernel sum_;
};

} // namespace waggle
