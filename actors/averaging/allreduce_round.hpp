#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/allreduce/round_engine.hpp"

namespace waggle {

/// To itself, from the engine: the report was sent.
struct round_over {};
using round_end_actor = caf::typed_actor<caf::reacts_to<round_over>>;
/// To itself, from the thread that fills our vector: more of it is there.
struct vector_filled {};
using filled_actor = caf::typed_actor<caf::reacts_to<vector_filled>>;

struct round_handles {
  switchboard_actor switchboard;
  round_listener_actor listener;
  std::vector<compute_worker_actor> workers; // empty: the thread that receives parts reduces them
};

/// Passes on to this actor what members of a round say about their group. Does not keep it alive.
round_registry::group_listener group_listener_to(const round_listener_actor& actor);

/// How often a round must be checked.
constexpr milliseconds round_check_interval(const round_config& config) {
  return std::clamp(config.stall_timeout / 8, milliseconds{20}, milliseconds{500});
}

using allreduce_round_base = allreduce_round_actor::extend_with<round_end_actor>::extend_with<
  filled_actor>::extend_with<sum_listener_actor>::base;

/// One round of one group. Registers a round_engine with `ctx.rounds`, where link_readers pass it
/// the parts and messages of other members, reports lost links to it, and ends with it. The
/// listener sends check_round every round_check_interval, and receives one report.
class allreduce_round final : public allreduce_round_base {
public:
  allreduce_round(caf::actor_config& cfg, node_context ctx, round_config config,
                  round_request request, round_handles peers);

  const char* name() const override { return "allreduce-round"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  void follow_filling();

  const node_context ctx_;
  const std::shared_ptr<filling> fills_; // null: our vector is complete
  const std::shared_ptr<std::atomic<bool>> told_ = std::make_shared<std::atomic<bool>>(false);
  round_listener_actor listener_;
  std::shared_ptr<round_engine> engine_;
};

} // namespace waggle
