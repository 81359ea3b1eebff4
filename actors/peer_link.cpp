// Out: call_over_link ─ id, deadline ─► wire::call ─► link        tell_over_link ─► wire::event ─► link
// In:  link ─► decode ─ part, round_* ─► round_registry, on the I/O thread
//                  └► frame_arrived ─► wire::answer ─► the caller's promise
//                                        ├► wire::call ─► service ─► wire::answer | refusal ─► link
//                                        └► wire::event ─► service
// Either side: ping ─► pong; silence, by the failure detector ─► the link is closed.

#include "actors/peer_link.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/wire/convert.hpp"

namespace waggle {

namespace {

using self_pointer = peer_link_impl::stateful_pointer<peer_link_state>;

void transmit(self_pointer self, const wire::message& what, payload body = {}) {
  auto& st = self->state;
  if (st.ended)
    return;
  // A link that no longer takes frames would lose them silently: nobody could tell what arrived.
  if (!st.link->send({wire::encode(what), std::move(body)}))
    st.link->close({ec::overloaded, "the peer does not keep up with what we send"});
}

/// The service is done with a call of the peer. True if the peer still wants the answer.
bool take_inbound(self_pointer self, std::uint64_t id) {
  auto found = self->state.inbound_calls.find(id);
  if (found == self->state.inbound_calls.end())
    return false;
  bool wanted = found->second;
  self->state.inbound_calls.erase(found);
  return wanted;
}

void settle(self_pointer self, std::uint64_t id, const failure& why) {
  auto found = self->state.calls.find(id);
  if (found == self->state.calls.end())
    return;
  auto promise = std::move(found->second);
  self->state.calls.erase(found);
  promise.deliver(to_caf(why));
}

class receiver {
public:
  receiver(self_pointer self, const node_context& ctx, const link_config& config, payload body)
    : self_(self), ctx_(ctx), config_(config), body_(std::move(body)) {}

  void operator()(wire::call& call) {
    auto& st = self_->state;
    const auto& service = st.services.find(topic_of(call.what), prefix_of(call.what));
    if (!service)
      return refuse(call.id, {ec::not_ready, "this peer does not serve that (yet)"});
    if (st.inbound_calls.size() >= config_.inbound_calls_max)
      return refuse(call.id, {ec::overloaded, "too many open requests"});
    if (!st.inbound_calls.emplace(call.id, true).second)
      return violate("a call id is used twice");
    auto id = call.id;
    auto patience =
      std::clamp(milliseconds{call.deadline_ms}, milliseconds{1}, config_.inbound_deadline_max);
    self_->request(service, patience, inbound_call{st.link->remote(), std::move(call.what)})
      .then(
        [self = self_, id](outbound_answer& answer) {
          if (take_inbound(self, id))
            transmit(self, wire::answer{id, std::move(answer.what)}, std::move(answer.body));
        },
        [self = self_, id](const caf::error& why) {
          auto reason = from_caf(why);
          reason.detail.resize(std::min(reason.detail.size(), wire::detail_bytes_max));
          if (take_inbound(self, id))
            transmit(self, wire::refusal{id, std::move(reason)});
        });
  }

  void operator()(wire::answer& answer) {
    auto& calls = self_->state.calls;
    auto bytes = body_.size;
    if (auto found = calls.find(answer.id); found != calls.end()) {
      auto promise = std::move(found->second);
      calls.erase(found);
      promise.deliver(peer_answer{self_->state.link->remote().id, std::move(answer.what), body_});
    }
    // The receiver keeps at most one body per call that it makes, so the window can move on.
    if (bytes > 0)
      self_->state.link->grant(bytes);
  }

  void operator()(const wire::refusal& refusal) { settle(self_, refusal.id, refusal.why); }

  // The service works on, its answer goes nowhere.
  void operator()(const wire::cancel& cancel) {
    auto found = self_->state.inbound_calls.find(cancel.id);
    if (found != self_->state.inbound_calls.end())
      found->second = false;
  }

  void operator()(const wire::ping& ping) { transmit(self_, wire::pong{ping.nonce}); }

  void operator()(const wire::pong& pong) {
    auto& st = self_->state;
    if (st.ping_nonce == 0 || pong.nonce != st.ping_nonce)
      return;
    st.ping_nonce = 0;
    st.arrived_before = st.pinged;
    ctx_.metrics->observe_rtt(seconds_of(self_->clock().now() - st.pinged));
  }

  void operator()(wire::event& event) {
    auto& st = self_->state;
    auto topic = topic_of(event);
    if (!topic) { // goodbye: the peer closes next
      st.said_goodbye = true;
      return;
    }
    const auto& service = st.services.find(*topic, prefix_of(event));
    inbound_event message{st.link->remote(), std::move(event), std::move(body_), st.link};
    if (service)
      self_->send(service, std::move(message));
    else
      message.release();
  }

private:
  void refuse(std::uint64_t id, failure why) { transmit(self_, wire::refusal{id, std::move(why)}); }

  void violate(std::string what) {
    ctx_.metrics->count_refused_input(ec::protocol_violation);
    self_->state.link->close({ec::protocol_violation, std::move(what)});
  }

  self_pointer self_;
  const node_context& ctx_;
  const link_config& config_;
  payload body_;
};

/// Reads frames on the I/O thread. What is about a round goes straight to it, everything else to
/// the actor. Holds no strong handle: the link may outlive us.
class frame_reader {
public:
  frame_reader(self_pointer self, const node_context& ctx, std::size_t backlog_max)
    : address_(caf::actor_cast<caf::weak_actor_ptr>(self)), seen_(self->state.seen),
      link_(self->state.link), remote_(self->state.link->remote()), rounds_(ctx.rounds),
      metrics_(ctx.metrics), clock_(self->home_system().clock()), backlog_max_(backlog_max) {}

  std::shared_ptr<std::byte> body_memory(const std::string& header, std::size_t bytes) {
    const auto* part = announced_part(header, bytes);
    return part == nullptr ? nullptr : rounds_->destination(remote_.id, *part, bytes);
  }

  bool zero_copy_ok(const std::string& header, std::size_t bytes) {
    const auto* part = announced_part(header, bytes);
    return part != nullptr && rounds_->zero_copy_ok(*part);
  }

  void on_frame(net::frame f) {
    auto now = clock_.now();
    seen_->heard.store(now.time_since_epoch().count());
    seen_->frames.fetch_add(1);
    // Control frames may come between a body's announcement and the body.
    auto message = announced_ && !f.body.empty() ? *std::exchange(announced_, std::nullopt)
                                                 : wire::decode(f.header, f.body.size);
    bool sign_of_life = message
                        && (std::holds_alternative<wire::ping>(*message)
                            || std::holds_alternative<wire::pong>(*message));
    if (!sign_of_life)
      seen_->used.store(now.time_since_epoch().count());
    auto link = link_.lock();
    if (message && link)
      if (auto* event = std::get_if<wire::event>(&*message))
        if (round_of(*event) != nullptr) {
          if (!rounds_->deliver({remote_, std::move(*event), std::move(f.body), std::move(link)},
                                now))
            metrics_->count_refused_input(ec::unknown_round);
          return;
        }
    if (seen_->backlog.fetch_add(f.header.size()) + f.header.size() > backlog_max_ && link)
      link->close({ec::overloaded, "the peer sends more than we can look at"});
    if (auto target = caf::actor_cast<caf::strong_actor_ptr>(address_))
      caf::anon_send(caf::actor_cast<peer_link_impl>(target),
                     frame_arrived{std::move(message), std::move(f.body), f.header.size()});
  }

private:
  /// The part whose body comes next; null: it is something else.
  const wire::part* announced_part(const std::string& header, std::size_t bytes) {
    if (!announced_)
      announced_.emplace(wire::decode(header, bytes));
    if (!*announced_)
      return nullptr;
    const auto* event = std::get_if<wire::event>(&**announced_);
    return event == nullptr ? nullptr : std::get_if<wire::part>(event);
  }

  caf::weak_actor_ptr address_;
  std::shared_ptr<peer_link_state::traffic> seen_;
  std::weak_ptr<net::link> link_;
  peer_record remote_;
  std::shared_ptr<round_registry> rounds_;
  std::shared_ptr<metric_families> metrics_;
  caf::actor_clock& clock_;
  std::size_t backlog_max_;
  std::optional<result<wire::message>> announced_; // of the body that is being read
};

void start_link(self_pointer self, const node_context& ctx, std::size_t backlog_max) {
  auto& st = self->state;
  st.seen = std::make_shared<peer_link_state::traffic>();
  auto reader = std::make_shared<frame_reader>(self, ctx, backlog_max);
  auto address = caf::actor_cast<caf::weak_actor_ptr>(self);
  net::link_events events;
  events.body_memory = [reader](const std::string& header, std::size_t bytes) {
    return reader->body_memory(header, bytes);
  };
  events.zero_copy_ok = [reader](const std::string& header, std::size_t bytes) {
    return reader->zero_copy_ok(header, bytes);
  };
  events.on_frame = [reader](net::frame f) { reader->on_frame(std::move(f)); };
  events.on_close = [address](failure why) {
    if (auto target = caf::actor_cast<caf::strong_actor_ptr>(address))
      caf::anon_send(caf::actor_cast<peer_link_impl>(target), connection_ended{std::move(why)});
  };
  st.link->start(std::move(events));
}

void on_frame(self_pointer self, const node_context& ctx, const link_config& config,
              frame_arrived& content) {
  auto& st = self->state;
  st.seen->backlog.fetch_sub(content.header_bytes);
  if (st.ended)
    return;
  if (!content.message) {
    const auto& why = content.message.error();
    ctx.metrics->count_refused_input(why.code);
    ctx.log->warn("peer {} sent a message that we refuse: {}", short_name(st.link->remote().id),
                  to_string(why));
    if (content.body.size > 0)
      st.link->grant(content.body.size);
    st.link->close(why);
    return;
  }
  std::visit(receiver{self, ctx, config, std::move(content.body)}, *content.message);
}

void on_end(self_pointer self, const link_owner_actor& owner, std::uint64_t number, failure why) {
  auto& st = self->state;
  if (st.ended)
    return;
  if (st.said_goodbye)
    why = {ec::shutting_down, "the peer said goodbye"};
  st.ended = why;
  auto calls = std::move(st.calls);
  st.calls.clear();
  for (auto& [id, promise] : calls)
    promise.deliver(to_caf(why.code == ec::none ? failure{ec::peer_lost, {}} : why));
  self->send(owner, link_down{st.link->remote().id, number, why});
  self->quit();
}

net::failure_detector_options detector_options(const link_config& config) {
  net::failure_detector_options options;
  options.expected = config.ping_interval;
  options.threshold = config.suspicion;
  options.silence_max = config.silence_timeout;
  return options;
}

void plan_check(self_pointer self, steady_time now, steady_time when) {
  self->state.check_due = when;
  self->delayed_send(self, when - now, check_silence{});
}

/// Nobody has used this connection since it was given up.
bool unused(self_pointer self, const link_config& config, steady_time now) {
  auto& st = self->state;
  auto wanted = [](const auto& call) { return call.second; };
  if (!st.calls.empty() || !st.link->idle()
      || std::any_of(st.inbound_calls.begin(), st.inbound_calls.end(), wanted))
    st.last_use = now;
  st.last_use = std::max(st.last_use, steady_time{steady_time::duration{st.seen->used.load()}});
  // What was written since the last look before that, the next ping came behind.
  return now - st.last_use >= config.unused_for
         && st.arrived_before >= st.last_use + config.ping_interval;
}

void check(self_pointer self, const link_config& config) {
  auto& st = self->state;
  if (st.ended)
    return;
  auto now = self->clock().now();
  auto& detector = *st.detector;
  // If this look comes late, it was we who did not run: what the peer said meanwhile may not have
  // been read yet.
  if (auto late = now - st.check_due; late > config.ping_interval / 2)
    detector.slept(late);
  auto frames = st.seen->frames.load();
  auto reads = st.link->reads();
  bool more = reads != std::exchange(st.reads_checked, reads);
  if (frames != std::exchange(st.frames_checked, frames))
    detector.heard(steady_time{steady_time::duration{st.seen->heard.load()}});
  else if (more)
    detector.heard(now); // of a frame that is not whole yet
  if (detector.suspects(now)) {
    auto silent = std::chrono::duration_cast<milliseconds>(now - detector.last_seen());
    st.link->close(
      {ec::timeout, "the peer sent nothing for " + std::to_string(silent.count()) + " ms"});
    return;
  }
  if (st.close_when_unused && unused(self, config, now)) {
    st.link->close(*st.close_when_unused);
    return;
  }
  if (st.ping_nonce == 0 || now - detector.last_seen() >= config.ping_interval) {
    st.ping_nonce = st.ping_nonce == 0 ? ++st.last_call : st.ping_nonce;
    st.pinged = now;
    transmit(self, wire::ping{st.ping_nonce});
  }
  plan_check(self, now, std::min<steady_time>(now + config.ping_interval, detector.suspect_at()));
}

struct request_topic {
  service_topic operator()(const wire::dht_ping&) const { return service_topic::dht; }
  service_topic operator()(const wire::dht_find&) const { return service_topic::dht; }
  service_topic operator()(const wire::dht_store&) const { return service_topic::dht; }
  service_topic operator()(const wire::join_group&) const { return service_topic::matchmaking; }
  service_topic operator()(const wire::open_state&) const { return service_topic::state; }
  service_topic operator()(const wire::get_state_chunk&) const { return service_topic::state; }
  service_topic operator()(const wire::enter_group&) const { return service_topic::averaging; }
};

struct event_topic {
  using topic = std::optional<service_topic>;
  topic operator()(const wire::goodbye&) const { return std::nullopt; }
  topic operator()(const wire::begin_group&) const { return service_topic::matchmaking; }
  topic operator()(const wire::disband_group&) const { return service_topic::matchmaking; }
  topic operator()(const wire::leave_group&) const { return service_topic::matchmaking; }
  topic operator()(const wire::progress_push&) const { return service_topic::progress; }
  topic operator()(const wire::progress_note&) const { return service_topic::progress; }
  template <class RoundEvent>
  topic operator()(const RoundEvent&) const {
    return service_topic::averaging;
  }
};

struct named_prefix {
  std::string_view operator()(const wire::join_group& x) const { return x.prefix; }
  std::string_view operator()(const wire::begin_group& x) const { return x.plan.prefix; }
  std::string_view operator()(const wire::disband_group& x) const { return x.prefix; }
  std::string_view operator()(const wire::leave_group& x) const { return x.prefix; }
  template <class Other>
  std::string_view operator()(const Other&) const {
    return {};
  }
};

} // namespace

const service_actor& service_table::find(service_topic topic, std::string_view prefix) const {
  if (topic == service_topic::matchmaking)
    if (auto found = matchmakers.find(prefix); found != matchmakers.end())
      return found->second;
  return by_topic[static_cast<std::size_t>(topic)];
}

std::string_view prefix_of(const wire::request& what) {
  return std::visit(named_prefix{}, what);
}

std::string_view prefix_of(const wire::event& what) {
  return std::visit(named_prefix{}, what);
}

status check_link_config(const link_config& config) {
  return net::check_failure_detector(detector_options(config));
}

service_topic topic_of(const wire::request& what) {
  return std::visit(request_topic{}, what);
}

std::optional<service_topic> topic_of(const wire::event& what) {
  return std::visit(event_topic{}, what);
}

peer_link_impl::behavior_type peer_link(self_pointer self, node_context ctx, link_config config,
                                        std::shared_ptr<net::link> link, std::uint64_t number,
                                        link_owner_actor owner, service_table services) {
  end_on_exception(self, ctx);
  auto& st = self->state;
  st.link = std::move(link);
  st.services = std::move(services);
  st.detector.emplace(detector_options(config), self->clock().now());
  self->monitor(owner); // without the switchboard nobody could use this link
  self->set_down_handler([self](const caf::down_msg&) { self->quit(); });
  self->attach_functor([link = st.link] { link->close({ec::shutting_down, {}}); });
  start_link(self, ctx, config.inbound_backlog_bytes);
  auto now = self->clock().now();
  plan_check(self, now, now + config.ping_interval);
  return {
    [self](call_over_link& msg) -> caf::result<peer_answer> {
      auto& st = self->state;
      if (st.ended)
        return to_caf(*st.ended);
      auto id = ++st.last_call;
      auto promise = self->make_response_promise<peer_answer>();
      st.calls.emplace(id, promise);
      transmit(
        self, wire::call{id, static_cast<std::uint32_t>(msg.timeout.count()), std::move(msg.what)});
      self->delayed_send(self, msg.timeout, call_expired{id});
      return promise;
    },
    [self](tell_over_link& msg) {
      transmit(self, wire::message{std::move(msg.what)}, std::move(msg.body));
    },
    [self](const close_link& msg) {
      if (!msg.when_idle)
        return self->state.link->close(msg.why);
      self->state.close_when_unused = msg.why;
      self->state.last_use = self->clock().now();
    },
    [self](keep_link) { self->state.close_when_unused.reset(); },
    [self, ctx, config](frame_arrived& msg) { on_frame(self, ctx, config, msg); },
    [self, owner, number](const connection_ended& msg) { on_end(self, owner, number, msg.why); },
    [self](const use_services& msg) { self->state.services = msg.services; },
    [self, config](check_silence) { check(self, config); },
    [self](const call_expired& msg) {
      if (self->state.calls.count(msg.id) == 0)
        return;
      transmit(self, wire::cancel{msg.id});
      settle(self, msg.id, {ec::timeout, "the peer did not answer in time"});
    },
  };
}

} // namespace waggle
