// averager ─► allreduce_round ─ round_engine ─► round_registry ◄─ parts and round_* of the members
//               ticks, links lost, cancel ┘  └─► link_table ─► members
//                                            └─► round_finished ─► averager

#include "actors/allreduce_round.hpp"

#include <algorithm>
#include <atomic>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = allreduce_round_impl::stateful_pointer<allreduce_round_state>;

/// How a round reaches the world: over the members' links, or, where there is none, by the
/// switchboard, which dials.
class live_port final : public round_port {
public:
  live_port(self_pointer self, const node_context& ctx, round_handles neighbours,
            const round_id& id)
    : ctx_(ctx), handles_(std::move(neighbours)), name_(short_name(id)),
      address_(caf::actor_cast<caf::weak_actor_ptr>(self)) {}

  void send(const peer_record& to, wire::event what, payload body) override {
    if (!ctx_.links->tell(to.id, what, body))
      caf::anon_send(handles_.switchboard, tell_peer{to, std::move(what), std::move(body)});
  }
  bool offload(std::function<void()> job) override {
    if (handles_.parts.empty())
      return false;
    caf::anon_send(handles_.parts[next_++ % handles_.parts.size()], reduce_part{std::move(job)});
    return true;
  }
  void count_part() override { ctx_.metrics->count_part("ok"); }
  void count_refused(ec why) override { ctx_.metrics->count_refused_input(why); }
  void say(const std::string& what) override { ctx_.log->info("round {} {}", name_, what); }
  void finished(round_finished how) override {
    for (const auto& fault : how.report.faults)
      ctx_.metrics->count_peer_fault(fault.reason);
    caf::anon_send(handles_.listener, std::move(how));
    if (auto round = caf::actor_cast<caf::strong_actor_ptr>(address_))
      caf::anon_send(caf::actor_cast<allreduce_round_impl>(round), round_over{});
  }

private:
  const node_context ctx_;
  const round_handles handles_;
  const std::string name_;
  const caf::weak_actor_ptr address_;
  std::size_t next_ = 0; // under the round's lock
};

} // namespace

allreduce_round_impl::behavior_type allreduce_round(self_pointer self, node_context ctx,
                                                    round_config config, round_request order,
                                                    round_handles neighbours) {
  end_on_exception(self, ctx);
  self->monitor(neighbours.listener); // nobody would hear how it ends
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
  auto now = [&clock = self->home_system().clock()] { return clock.now(); };
  std::shared_ptr<round_port> port =
    std::make_shared<live_port>(self, ctx, neighbours, order.plan.id);
  if (ctx.port_decorator)
    port = ctx.port_decorator(std::move(port));
  auto engine = std::make_shared<round_engine>(
    std::move(order), config, round_memory{ctx.vectors, ctx.encoded_parts}, std::move(port), now);
  self->state.engine = engine;
  self->attach_functor([engine, now, rounds = ctx.rounds] {
    engine->cancel({ec::shutting_down, {}}); // nothing, if the round is over
    rounds->finish(engine->plan().id, engine->promise(), now());
  });
  auto listener = caf::actor_cast<caf::weak_actor_ptr>(neighbours.listener);
  ctx.rounds->begin(engine, [listener](const peer_record& who, const wire::event& word) {
    if (auto target = caf::actor_cast<caf::strong_actor_ptr>(listener))
      caf::anon_send(caf::actor_cast<round_listener_actor>(target), group_message{who, word});
  });
  return {
    [ctx, now](const inbound_event& msg) { ctx.rounds->deliver(msg, now()); },
    [engine](const cancel_round& msg) {
      if (msg.unless_prepared)
        engine->cancel_unless_prepared(msg.why);
      else
        engine->cancel(msg.why);
    },
    [](const peer_connected&) { /* who reconnects has lost frames: the round goes on without */ },
    [engine](const peer_disconnected& msg) { engine->on_lost(msg.peer, msg.why.code); },
    [engine](check_round) { engine->check(); },
    [self](round_over) { self->quit(); },
  };
}

} // namespace waggle
