#pragma once

#include <memory>

#include "actors/node_context.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/fake_signatures.hpp"

namespace waggle::testing {

/// Begins a round of `plan` at its first member, whose context this is: from then on, the other
/// members are no strangers to it.
inline void begin_round(const node_context& ctx, const round_plan& plan) {
  auto values = std::make_shared<const float_vector>(plan.elements, 1.0F);
  auto engine = std::make_shared<round_engine>(
    round_request{plan, 0, values, 1}, round_config{}, round_memory{ctx.vectors, ctx.encoded_parts},
    std::make_shared<mute_port>(plan.members[0].peer.id), [] { return steady_time{}; });
  ctx.rounds->begin(engine, [](const peer_record&, const wire::event&) {});
  ctx.rounds->finish(plan.id, engine->promise(), {});
}

} // namespace waggle::testing
