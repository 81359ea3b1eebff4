// call_peer / tell_peer ─► connected? ─ yes ─► peer_link
//                              └ no ─► dial (all addresses of the record in turn) ─► link ─► peer_link
// transport ─► link_arrived ─► new peer_link ─► peer_connected to the listeners
// peer_link ─► link_down ─► peer_disconnected, once the peer's last link is gone
// link_arrived from a second process of a peer ─► call the first ─ answer ─► the second is closed
//                                                               └ none ─► the second replaces it

#include "actors/switchboard.hpp"

#include <algorithm>
#include <utility>

#include "actors/guard.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle {

namespace {

using self_pointer = switchboard_impl::stateful_pointer<switchboard_state>;
using connection = switchboard_state::connection;

/// The connection that both sides agree to use.
const connection& canonical(const peer_id& self, const peer_id& peer,
                            const std::vector<connection>& all) {
  bool ours = self < peer; // the smaller id's dial wins
  for (auto i = all.rbegin(); i != all.rend(); ++i)
    if (i->outbound == ours)
      return *i;
  return all.back();
}

/// Whether `peer` was not seen before; of more than fit, none is.
bool first_time(std::set<peer_id>& seen, const peer_id& peer, const switchboard_config& config) {
  return seen.size() < config.links_max && seen.insert(peer).second;
}

void count_connections(self_pointer self, const node_context& ctx) {
  double in = 0;
  double out = 0;
  for (const auto& [id, peer] : self->state.peers)
    for (const auto& c : peer.connections)
      (c.outbound ? out : in) += 1;
  ctx.metrics->set_connections(in, out);
}

std::size_t connection_count(const switchboard_state& st) {
  std::size_t n = 0;
  for (const auto& [id, peer] : st.peers)
    n += peer.connections.size();
  return n;
}

void call_over(self_pointer self, const peer_link_actor& link,
               caf::typed_response_promise<peer_answer> promise, wire::request what,
               milliseconds timeout) {
  // The link enforces the deadline; ours is only there in case that it ends without a word.
  self->request(link, timeout + 1s, call_over_link{std::move(what), timeout})
    .then([promise](peer_answer& answer) mutable { promise.deliver(std::move(answer)); },
          [promise](caf::error& why) mutable { promise.deliver(std::move(why)); });
}

/// Sends over `link`, in order, what waited for it.
void hand_over(self_pointer self, const peer_link_actor& link, switchboard_state::dial& dial) {
  auto now = self->clock().now();
  for (auto& item : std::exchange(dial.waiting, {})) {
    if (auto* call = std::get_if<switchboard_state::waiting_call>(&item)) {
      auto left = std::chrono::duration_cast<milliseconds>(call->deadline - now);
      if (left <= 0ms)
        call->promise.deliver(to_caf(ec::timeout, "connecting took too long"));
      else
        call_over(self, link, std::move(call->promise), std::move(call->what), left);
    } else {
      auto& event = std::get<switchboard_state::waiting_event>(item);
      self->send(link, tell_over_link{std::move(event.what), std::move(event.body)});
    }
  }
}

/// Everybody who waits for `dial` hears why it came to nothing.
void refuse_waiting(switchboard_state::dial& dial, const failure& why) {
  for (auto& promise : std::exchange(dial.connects, {}))
    promise.deliver(to_caf(why));
  for (auto& item : std::exchange(dial.waiting, {}))
    if (auto* call = std::get_if<switchboard_state::waiting_call>(&item))
      call->promise.deliver(to_caf(why));
}

void ask_for_life(self_pointer self, const node_context& ctx, const switchboard_config& config,
                  const peer_id& peer);

/// Enters an authenticated link. Nothing if it was refused, or if it has to wait.
void enter(self_pointer self, const node_context& ctx, const switchboard_config& config,
           const std::shared_ptr<net::link>& link) {
  auto& st = self->state;
  const auto& remote = link->remote();
  auto instance = link->claims().instance;
  if (st.hung_up) {
    link->close({ec::shutting_down, "this peer is stopping"});
    return;
  }
  if (auto known = st.peers.find(remote.id); known != st.peers.end() && instance != 0
                                             && known->second.instance != 0
                                             && instance != known->second.instance) {
    auto older = std::exchange(known->second.newcomer, link);
    if (older)
      older->close({ec::peer_lost, "replaced by a newer connection"});
    else
      ask_for_life(self, ctx, config, remote.id);
    return;
  }
  if (connection_count(st) >= config.links_max) {
    ctx.metrics->count_refused_input(ec::overloaded);
    link->close({ec::overloaded, "this peer has all the links it wants"});
    return;
  }
  auto number = ++st.numbers;
  auto actor = self->spawn<caf::monitored>(peer_link, ctx, config.link, link, number,
                                           caf::actor_cast<link_owner_actor>(self), st.services);
  auto [entry, is_new] = st.peers.try_emplace(remote.id);
  auto& peer = entry->second;
  if (is_new || !remote.addresses.empty())
    peer.record = remote;
  if (instance != 0)
    peer.instance = instance;
  for (const auto& older : peer.connections)
    if (older.outbound == link->outbound())
      self->send(older.actor, close_link{{ec::peer_lost, "replaced by a newer connection"}, true});
  peer.connections.push_back({number, link, actor, link->outbound()});
  if (peer.connections.size() > 1) {
    // Two sides dialled at once: whoever dialled the one that is not used lets it end.
    const auto& wanted = canonical(ctx.record.id, remote.id, peer.connections);
    for (const auto& c : peer.connections)
      if (c.number != wanted.number && c.outbound)
        self->send(c.actor, close_link{{ec::none, "one connection is enough"}, true});
  }
  const auto& used = canonical(ctx.record.id, remote.id, peer.connections);
  ctx.links->set(remote.id, used.link);
  // A peer that dials again and again must not hold all of our links.
  if (peer.connections.size() > config.links_per_peer_max)
    for (const auto& c : peer.connections)
      if (c.number != used.number) {
        ctx.metrics->count_refused_input(ec::overloaded);
        self->send(c.actor, close_link{{ec::overloaded, "too many connections"}, false});
        break;
      }
  count_connections(self, ctx);
  if (is_new) {
    ctx.metrics->count_peer_join();
    ctx.log->info("connected to peer {}", short_name(remote.id));
    for (const auto& listener : st.listeners)
      self->send(listener, peer_connected{peer.record});
  }
  // It was quicker to reach us than we to reach it, or we cannot.
  if (auto dial = st.dialling.find(remote.id); dial != st.dialling.end())
    hand_over(self, actor, st.dials.at(dial->second));
}

void on_link_down(self_pointer self, const node_context& ctx, const switchboard_config& config,
                  const link_down& msg) {
  auto& st = self->state;
  auto entry = st.peers.find(msg.peer);
  if (entry == st.peers.end())
    return;
  std::erase_if(entry->second.connections,
                [&](const connection& c) { return c.number == msg.link; });
  if (!entry->second.connections.empty()) {
    const auto& used = canonical(ctx.record.id, msg.peer, entry->second.connections);
    ctx.links->set(msg.peer, used.link);
    self->send(caf::actor_cast<peer_link_impl>(used.actor), keep_link{});
  }
  if (entry->second.connections.empty()) {
    auto newcomer = std::move(entry->second.newcomer);
    ctx.links->erase(msg.peer);
    st.peers.erase(entry);
    ctx.metrics->count_peer_departure(msg.why.code);
    // Refused because another process has our identity: each dial ends like this.
    bool grave =
      msg.why.code == ec::duplicate_identity && first_time(st.shared_identities, msg.peer, config);
    ctx.log->log(grave ? spdlog::level::err : spdlog::level::info, "lost peer {}: {}",
                 short_name(msg.peer), to_string(msg.why));
    for (const auto& listener : st.listeners)
      self->send(listener, peer_disconnected{msg.peer, msg.why});
    if (newcomer)
      enter(self, ctx, config, newcomer);
  }
  count_connections(self, ctx);
}

/// The connected process of `peer` said that it lives, or did not.
void settle_identity(self_pointer self, const node_context& ctx, const switchboard_config& config,
                     const peer_id& peer, bool alive) {
  auto& st = self->state;
  auto entry = st.peers.find(peer);
  if (entry == st.peers.end() || !entry->second.newcomer)
    return; // its links ended meanwhile, and the other one came in
  auto newcomer = std::exchange(entry->second.newcomer, nullptr);
  if (alive) {
    ctx.metrics->count_refused_input(ec::duplicate_identity);
    if (first_time(st.shared_identities, peer, config))
      ctx.log->warn("refused a second process with the identity of peer {}, which is connected",
                    short_name(peer));
    newcomer->close({ec::duplicate_identity, std::string{net::identity_in_use}});
    return;
  }
  failure why{ec::peer_lost, "the peer was started again"};
  auto old = entry->second.connections;
  for (const auto& c : old) {
    self->send(c.actor, close_link{why, false});
    on_link_down(self, ctx, config, {peer, c.number, why});
  }
  enter(self, ctx, config, newcomer);
}

/// Any answer is a sign of life, also one that refuses: what does not come is what tells.
void ask_for_life(self_pointer self, const node_context& ctx, const switchboard_config& config,
                  const peer_id& peer) {
  const auto& connections = self->state.peers.at(peer).connections;
  self
    ->request(canonical(ctx.record.id, peer, connections).actor, config.identity_timeout + 1s,
              call_over_link{wire::dht_ping{}, config.identity_timeout})
    .then([self, ctx, config,
           peer](const peer_answer&) { settle_identity(self, ctx, config, peer, true); },
          [self, ctx, config, peer](const caf::error& error) {
            auto why = from_caf(error).code;
            bool gone = why == ec::timeout || why == ec::peer_lost || why == ec::shutting_down;
            settle_identity(self, ctx, config, peer, !gone);
          });
}

void try_next_address(self_pointer self, const switchboard_config& config, std::uint64_t number);

void finish_dial(self_pointer self, const node_context& ctx, std::uint64_t number,
                 const failure& why) {
  auto& st = self->state;
  auto dial = std::move(st.dials.at(number));
  st.dials.erase(number);
  if (!dial.peer.is_zero())
    st.dialling.erase(dial.peer);
  refuse_waiting(dial, why);
  ctx.log->debug("could not reach {}: {}", to_string(dial.current), to_string(why));
}

void on_dial_ended(self_pointer self, const node_context& ctx, const switchboard_config& config,
                   const dial_ended& msg) {
  auto& st = self->state;
  auto found = st.dials.find(msg.dial);
  if (found == st.dials.end()) {
    if (msg.link)
      msg.link->close({ec::shutting_down, {}});
    return;
  }
  if (!msg.link) {
    if (found->second.addresses.empty() || self->clock().now() >= found->second.deadline)
      return finish_dial(self, ctx, msg.dial, msg.why);
    return try_next_address(self, config, msg.dial);
  }
  auto dial = std::move(found->second);
  st.dials.erase(found);
  if (!dial.peer.is_zero())
    st.dialling.erase(dial.peer);
  enter(self, ctx, config, msg.link);
  auto peer = st.peers.find(msg.link->remote().id);
  if (peer == st.peers.end())
    return refuse_waiting(
      dial, st.hung_up ? failure{ec::shutting_down, "this peer is stopping"}
                       : failure{ec::overloaded, "this peer has all the links it wants"});
  for (auto& promise : dial.connects)
    promise.deliver(peer_connected{peer->second.record});
  hand_over(self, canonical(ctx.record.id, peer->first, peer->second.connections).actor, dial);
}

/// A call's deadline covers the dial that it waits for, however long others are ready to wait.
void on_dial_overdue(self_pointer self, const dial_overdue& msg) {
  auto found = self->state.dials.find(msg.dial);
  if (found == self->state.dials.end())
    return;
  auto now = self->clock().now();
  std::erase_if(found->second.waiting, [&](auto& item) {
    auto* call = std::get_if<switchboard_state::waiting_call>(&item);
    if (call == nullptr || call->deadline > now)
      return false;
    call->promise.deliver(to_caf(ec::timeout, "connecting took too long"));
    return true;
  });
}

void try_next_address(self_pointer self, const switchboard_config& config, std::uint64_t number) {
  auto& st = self->state;
  auto& dial = st.dials.at(number);
  dial.current = dial.addresses.front();
  dial.addresses.pop_front();
  auto left = std::chrono::duration_cast<milliseconds>(dial.deadline - self->clock().now());
  auto timeout = std::clamp(left, milliseconds{1}, config.dial_timeout);
  auto address = caf::actor_cast<caf::weak_actor_ptr>(self);
  st.transport->dial(
    dial.current, dial.peer, timeout, [address, number](result<std::shared_ptr<net::link>> made) {
      auto target = caf::actor_cast<caf::strong_actor_ptr>(address);
      dial_ended ended{number, made ? *made : nullptr, made ? failure{} : made.error()};
      if (target)
        caf::anon_send(caf::actor_cast<switchboard_impl>(target), std::move(ended));
      else if (made)
        (*made)->close({ec::shutting_down, {}});
    });
}

/// The dial to `to`, begun if there is none; null if it cannot be dialled.
switchboard_state::dial* reach(self_pointer self, const switchboard_config& config,
                               const peer_record& to, milliseconds timeout) {
  auto& st = self->state;
  if (auto known = st.dialling.find(to.id); known != st.dialling.end()) {
    auto& dial = st.dials.at(known->second);
    dial.deadline = std::max(dial.deadline, self->clock().now() + timeout);
    return &dial;
  }
  if (to.addresses.empty() || st.hung_up)
    return nullptr;
  auto number = ++st.numbers;
  auto& dial = st.dials[number];
  dial.peer = to.id;
  dial.addresses = {to.addresses.begin(), to.addresses.end()};
  dial.deadline = self->clock().now() + timeout;
  st.dialling.emplace(to.id, number);
  try_next_address(self, config, number);
  return &dial;
}

caf::result<peer_answer> on_call(self_pointer self, const node_context& ctx,
                                 const switchboard_config& config, call_peer& msg) {
  auto& st = self->state;
  if (msg.timeout <= 0ms)
    return to_caf(ec::timeout, "no time was left to ask");
  if (auto peer = st.peers.find(msg.to.id); peer != st.peers.end())
    return self->delegate(canonical(ctx.record.id, peer->first, peer->second.connections).actor,
                          call_over_link{std::move(msg.what), msg.timeout});
  auto* dial = reach(self, config, msg.to, msg.timeout);
  if (dial == nullptr)
    return to_caf(ec::unreachable, "not connected, and no address to dial is known");
  if (dial->waiting.size() >= config.waiting_max)
    return to_caf(ec::overloaded, "too much waits for this connection");
  auto promise = self->make_response_promise<peer_answer>();
  dial->waiting.emplace_back(switchboard_state::waiting_call{promise, std::move(msg.what),
                                                             self->clock().now() + msg.timeout});
  self->delayed_send(self, msg.timeout, dial_overdue{st.dialling.at(msg.to.id)});
  return promise;
}

void on_tell(self_pointer self, const node_context& ctx, const switchboard_config& config,
             tell_peer& msg) {
  auto& st = self->state;
  if (auto peer = st.peers.find(msg.to.id); peer != st.peers.end()) {
    self->send(canonical(ctx.record.id, peer->first, peer->second.connections).actor,
               tell_over_link{std::move(msg.what), std::move(msg.body)});
    return;
  }
  auto* dial = reach(self, config, msg.to, config.dial_timeout);
  if (dial != nullptr && dial->waiting.size() < config.waiting_max)
    dial->waiting.emplace_back(
      switchboard_state::waiting_event{std::move(msg.what), std::move(msg.body)});
}

} // namespace

switchboard_impl::behavior_type switchboard(self_pointer self, node_context ctx,
                                            switchboard_config config,
                                            std::shared_ptr<net::transport> transport) {
  end_on_exception(self, ctx);
  self->state.transport = std::move(transport);
  self->set_down_handler([self, ctx, config](const caf::down_msg& down) {
    std::erase_if(self->state.listeners, [&](const link_listener_actor& listener) {
      return listener.address() == down.source;
    });
    // A link that ended in good order has told us already; this is for one that did not.
    for (auto& [id, peer] : self->state.peers)
      for (auto& c : peer.connections)
        if (c.actor.address() == down.source)
          return on_link_down(self, ctx, config, {id, c.number, from_caf(down.reason)});
  });
  self->set_exit_handler([self](const caf::exit_msg& msg) {
    for (auto& [id, peer] : self->state.peers) {
      for (auto& c : peer.connections)
        self->send_exit(c.actor, msg.reason);
      if (peer.newcomer)
        peer.newcomer->close({ec::shutting_down, {}});
    }
    self->state.listeners.clear();
    self->state.services = {};
    self->quit(msg.reason);
  });
  return {
    [self, ctx, config](call_peer& msg) { return on_call(self, ctx, config, msg); },
    [self, ctx, config](tell_peer& msg) { on_tell(self, ctx, config, msg); },
    [self, config](const connect_address& msg) -> caf::result<peer_connected> {
      auto& st = self->state;
      if (st.hung_up)
        return to_caf(ec::shutting_down);
      auto number = ++st.numbers;
      auto& dial = st.dials[number];
      dial.addresses = {msg.where};
      dial.deadline = self->clock().now() + msg.timeout;
      auto promise = self->make_response_promise<peer_connected>();
      dial.connects.push_back(promise);
      try_next_address(self, config, number);
      return promise;
    },
    [self](get_connected_peers) {
      connected_peers all;
      for (const auto& [id, peer] : self->state.peers)
        all.peers.push_back(peer.record);
      return all;
    },
    [self](const serve& msg) {
      auto& st = self->state;
      if (msg.prefix.empty())
        st.services.by_topic[static_cast<std::size_t>(msg.topic)] = msg.service;
      else
        st.services.matchmakers.insert_or_assign(msg.prefix, msg.service);
      for (auto& [id, peer] : st.peers)
        for (auto& c : peer.connections)
          self->send(caf::actor_cast<peer_link_impl>(c.actor), use_services{st.services});
    },
    [self](const listen_links& msg) {
      self->state.listeners.push_back(msg.listener);
      self->monitor(msg.listener);
      for (const auto& [id, peer] : self->state.peers)
        self->send(msg.listener, peer_connected{peer.record});
    },
    [self, ctx, config](const link_arrived& msg) { enter(self, ctx, config, msg.link); },
    [self](hang_up) {
      auto& st = self->state;
      st.hung_up = true;
      for (auto& [id, peer] : st.peers) {
        for (auto& c : peer.connections) {
          self->send(c.actor, tell_over_link{wire::goodbye{}, {}});
          self->send(c.actor, close_link{{ec::shutting_down, "this peer is stopping"}, false});
        }
        if (auto newcomer = std::exchange(peer.newcomer, nullptr))
          newcomer->close({ec::shutting_down, "this peer is stopping"});
      }
    },
    [self, ctx, config](const dial_ended& msg) { on_dial_ended(self, ctx, config, msg); },
    [self](const dial_overdue& msg) { on_dial_overdue(self, msg); },
    [self, ctx, config](const link_down& msg) { on_link_down(self, ctx, config, msg); },
  };
}

} // namespace waggle
