//  part, round_* ─► link_reader ─► round_registry ─► round_engine ─► link_table ─► members   (I/O)
//                                                      ▲   │   └─► run_job ─► compute_worker
//  averager ─ check_round, cancel_round, lost links ─► allreduce_round ◄──── reduced_part ─┘
//     ▲                                                    │
//     └───────────────────── round_finished ───────────────┘

#include "actors/averaging/allreduce_round.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

/// Sends a round's messages over the members' links, or through the switchboard, which dials, if
/// there is no link.
class live_port final : public round_port {
public:
  live_port(caf::weak_actor_ptr round, const node_context& ctx, round_handles handles,
            const round_plan& plan, const caf::actor_clock& clock)
    : ctx_(ctx), handles_(std::move(handles)),
      name_(short_name(plan.id)), about_{.epoch = plan.epoch, .round = plan.id},
      round_(std::move(round)), clock_(clock) {}

  void send(const peer_record& to, wire::event what, payload body) override {
    const auto* only = &to;
    send_all({&only, 1}, what, body);
  }
  void send_all(std::span<const peer_record* const> to, const wire::event& what,
                const payload& body) override {
    ctx_.links->tell_all(to, what, body, failed_, [&](const peer_record& peer) {
      caf::anon_send(handles_.switchboard, notify_peer{peer, what, body});
    });
  }
  [[nodiscard]] std::uint64_t body_bytes_written(const peer_id& peer) const override {
    auto link = ctx_.links->find(peer);
    return link ? link->facts().body_bytes_written : 0;
  }
  bool reduce(const reduce_part& what) override {
    if (handles_.workers.empty())
      return false;
    // The handle is weak: the round must not end on this thread, with its engine locked.
    auto job = [what, round = round_]() -> std::shared_ptr<const float_vector> {
      auto sum = waggle::reduce(what);
      if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(round))
        caf::anon_send(caf::actor_cast<sum_listener_actor>(alive), std::move(sum));
      return nullptr;
    };
    caf::anon_send(handles_.workers[next_++ % handles_.workers.size()], run_job{std::move(job)});
    return true;
  }
  [[nodiscard]] digest secret(const round_id& round, std::uint32_t view) override {
    // A signature is a hash that only the owner of the key can compute.
    auto what = "waggle key share " + to_hex(round.view()) + " " + std::to_string(view);
    return sha256(ctx_.self->sign(what).view());
  }
  [[nodiscard]] signature sign(std::string_view statement) override {
    return ctx_.self->sign(statement);
  }
  [[nodiscard]] bool verify(const peer_record& by, std::string_view statement,
                            const signature& its) override {
    return peer_id_of(by.key) == by.id
           && ctx_.verifier->verify(by.key, as_byte_span(statement), its);
  }
  void count_part() override { ctx_.metrics->count_part(); }
  void count_check(bool right) override { ctx_.metrics->count_check(right); }
  void count_refused(ec why) override { ctx_.metrics->count_refused_input(why); }
  void log(const std::string& what) override {
    log_about about{about_};
    ctx_.log_caused("rounds", clock_.now(), spdlog::level::info, "round " + name_ + " " + what);
  }
  void finished(round_finished how) override {
    *failed_ = how.report.outcome == round_outcome::failed;
    for (const auto& fault : how.report.faults)
      ctx_.metrics->count_peer_fault(fault.reason);
    caf::anon_send(handles_.listener, std::move(how));
    if (auto round = caf::actor_cast<caf::strong_actor_ptr>(round_))
      caf::anon_send(caf::actor_cast<round_end_actor>(round), round_over{});
  }

private:
  const node_context ctx_;
  const round_handles handles_;
  const std::string name_;
  const log_about::fields about_;
  const caf::weak_actor_ptr round_;
  const caf::actor_clock& clock_;
  /// The others know that we left such a round: what of its parts has not been sent, nobody needs.
  const std::shared_ptr<std::atomic<bool>> failed_ = std::make_shared<std::atomic<bool>>(false);
  std::size_t next_ = 0; // under the round's lock
};

} // namespace

round_registry::group_listener group_listener_to(const round_listener_actor& actor) {
  return [to = caf::actor_cast<caf::weak_actor_ptr>(actor)](const peer_record& who,
                                                            const wire::event& message) {
    if (auto target = caf::actor_cast<caf::strong_actor_ptr>(to))
      caf::anon_send(caf::actor_cast<round_listener_actor>(target), group_message{who, message});
  };
}

allreduce_round::allreduce_round(caf::actor_config& cfg, node_context ctx, round_config config,
                                 round_request request, round_handles peers)
  : allreduce_round_base(cfg), ctx_(std::move(ctx)), fills_(request.fills),
    listener_(peers.listener) {
  end_on_exception(this, ctx_);
  ctx_.metrics->set_share_ratio(static_cast<double>(request.plan.shares[request.self_index])
                                / static_cast<double>(request.plan.elements));
  std::shared_ptr<round_port> port =
    std::make_shared<live_port>(caf::actor_cast<caf::weak_actor_ptr>(this), ctx_, std::move(peers),
                                request.plan, home_system().clock());
  if (ctx_.port_decorator)
    port = ctx_.port_decorator(std::move(port));
  engine_ = std::make_shared<round_engine>(
    std::move(request), config, round_memory{ctx_.vectors, ctx_.encoded_parts}, std::move(port),
    [&time = home_system().clock()] { return time.now(); });
}

void allreduce_round::on_exit() {
  engine_->cancel({ec::shutting_down, {}}); // no effect if the round is over
  ctx_.rounds->finish(engine_->plan().id, engine_->promise(), clock().now());
  engine_.reset();                // with its port's handles
  demonitor(listener_.address()); // else it keeps this actor's memory as long as it lives
  listener_ = nullptr;
}

allreduce_round::behavior_type allreduce_round::make_behavior() {
  monitor(listener_); // without it, nothing receives the report
  set_down_handler([this](const caf::down_msg&) { quit(); });
  if (fills_)
    follow_filling();
  ctx_.rounds->begin(engine_, group_listener_to(listener_));
  return {
    [this](check_round) { engine_->check(); },
    [this](const cancel_round& msg) {
      if (msg.unless_prepared)
        engine_->cancel_unless_prepared(msg.why);
      else
        engine_->cancel(msg.why);
    },
    [this](const peer_disconnected& msg) { engine_->on_lost(msg.peer, msg.why.code); },
    [this](const reduced_part& sum) { engine_->on_reduced(sum); },
    [this](vector_filled) {
      *told_ = false;
      engine_->ship();
    },
    [this](round_over) { quit(); },
  };
}

/// The thread that fills it computes a gradient: it is not held up by the encoding and sending, and
/// one message does for all that is there when it is received. The round of another plan may follow
/// this one and listen in its place.
void allreduce_round::follow_filling() {
  fills_->listen([weak = caf::actor_cast<caf::weak_actor_ptr>(this), told = told_] {
    if (!told->exchange(true))
      if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(weak))
        caf::anon_send(caf::actor_cast<filled_actor>(alive), vector_filled{});
  });
}

} // namespace waggle
