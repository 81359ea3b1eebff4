#include "actors/averaging/part_worker.hpp"

#include "actors/guard.hpp"

namespace waggle {

part_worker::part_worker(caf::actor_config& cfg, const node_context& ctx, kernel sum)
  : part_worker_actor::base(cfg), sum_(std::move(sum)) {
  end_on_exception(this, ctx);
}

part_worker::behavior_type part_worker::make_behavior() {
  return {[this](const reduce_for_round& msg) {
    auto sum = sum_(msg.what);
    if (auto round = caf::actor_cast<caf::strong_actor_ptr>(msg.round))
      send(caf::actor_cast<sum_listener_actor>(round), std::move(sum));
  }};
}

} // namespace waggle
