#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/allreduce/round_engine.hpp"

namespace waggle {

/// Command from the listener: check the round's timeouts and members that stall. One timer for all
/// rounds of an averager is cheaper than one per round: waking the timer thread costs more than a
/// small round.
struct check_round {};
/// To itself: the report was sent.
struct round_over {};

/// The actors that a round needs.
struct round_handles {
  switchboard_actor switchboard;
  round_listener_actor listener;
  std::vector<allreduce_part_actor> parts; // empty: the thread that receives parts computes sums
};

/// How often a round must be checked.
constexpr milliseconds round_check_interval(const round_config& config) {
  return std::clamp(config.stall_timeout / 8, milliseconds{20}, milliseconds{500});
}

struct allreduce_round_state {
  static inline const char* name = "allreduce-round";

  std::shared_ptr<round_engine> engine;
};

using allreduce_round_impl =
  allreduce_round_actor::extend<caf::reacts_to<check_round>, caf::reacts_to<round_over>>;

/// One round of one group: registers a round_engine with `ctx.rounds`, notifies it of lost links,
/// and ends when it ends. The listener sends check_round every round_check_interval, and receives
/// the report, once.
allreduce_round_impl::behavior_type
allreduce_round(allreduce_round_impl::stateful_pointer<allreduce_round_state> self,
                node_context ctx, round_config config, round_request order,
                round_handles neighbours);

} // namespace waggle

WAGGLE_LOCAL(check_round)
WAGGLE_LOCAL(round_over)
