// call_peer / notify_peer ─► connected? ─ yes ─► peer_link
//                              └ no ─► dial (the addresses of the record race) ─► link ─► peer_link
// transport ─► link_arrived ─► new peer_link ─► peer_connected to the listeners
// peer_link ─► link_down ─► peer_disconnected, once the peer's last link is gone
// link_arrived from a second process of a peer ─► call the first ─ answer ─► the second is closed
//                                                               └ none ─► the second replaces it

// This file is long: it is one table of links, and every event of a link's life changes it.

#include "actors/links/switchboard.hpp"

#include <algorithm>
#include <utility>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle {

switchboard::switchboard(caf::actor_config& cfg, node_context ctx, switchboard_config config,
                         std::shared_ptr<net::transport> transport)
  : switchboard_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    transport_(std::move(transport)), dialled_(config_.announced_addresses),
    limits_({.attempts_max = config_.dials_max}) {
  end_on_exception(this, ctx_);
}

void switchboard::on_exit() {
  dials_.clear();
  peers_.clear();
  listeners_.clear();
  services_ = {};
}

switchboard::behavior_type switchboard::make_behavior() {
  set_down_handler([this](const caf::down_msg& down) { on_down(down); });
  set_exit_handler([this](const caf::exit_msg& msg) {
    for (auto& [id, peer] : peers_) {
      for (auto& c : peer.connections)
        send_exit(c.actor, msg.reason);
      if (peer.newcomer)
        peer.newcomer->close({ec::shutting_down, {}});
    }
    quit(msg.reason);
  });
  return {
    [this](call_peer& msg) { return call(msg); },
    [this](notify_peer& msg) { tell(msg); },
    [this](const connect_address& msg) { return connect(msg); },
    [this](const serve& msg) { set_service(msg); },
    [this](const listen_links& msg) { add_listener(msg); },
    [this](const link_arrived& msg) { enter(msg.link); },
    [this](hang_up) { return hang_up_all(); },
    [this](const dial_overdue& msg) { on_dial_overdue(msg); },
    [this](const dial_next& msg) { on_dial_next(msg); },
    [this](const dial_ended& msg) { on_dial_ended(msg); },
    [this](const link_down& msg) { on_link_down(msg); },
    [this](const record_changed& msg) { on_record_changed(msg.now); },
    [this](members_changed) { on_members_changed(); },
    [this](const members_due& msg) { on_members_due(msg); },
  };
}

// -- what our own actors send to peers ------------------------------------------------------------

caf::result<peer_answer> switchboard::call(call_peer& msg) {
  if (msg.timeout <= 0ms)
    return to_caf(ec::timeout, "no time was left for the request");
  if (auto peer = peers_.find(msg.to.id); peer != peers_.end())
    return delegate(used(peer->first, peer->second.connections).actor,
                    call_over_link{std::move(msg.what), msg.timeout});
  auto* dial = reach(msg.to, msg.timeout);
  if (dial == nullptr)
    return to_caf(ec::unreachable, "not connected, and no address to dial is known, or its "
                                   "addresses just failed, or too many others are being dialled");
  if (dial->waiting.size() >= config_.waiting_max)
    return to_caf(ec::overloaded, "too many messages wait for this connection");
  auto promise = make_response_promise<peer_answer>();
  dial->waiting.emplace_back(waiting_call{promise, std::move(msg.what), now() + msg.timeout});
  delayed_send(this, msg.timeout, dial_overdue{dialling_.at(msg.to.id)});
  return promise;
}

void switchboard::tell(notify_peer& msg) {
  if (auto peer = peers_.find(msg.to.id); peer != peers_.end()) {
    send(used(peer->first, peer->second.connections).actor,
         notify_over_link{std::move(msg.what), std::move(msg.body)});
    return;
  }
  auto* dial = reach(msg.to, config_.dial_timeout);
  if (dial != nullptr && dial->waiting.size() < config_.waiting_max)
    dial->waiting.emplace_back(waiting_event{std::move(msg.what), std::move(msg.body)});
}

void switchboard::call_over(const peer_link_actor& link,
                            caf::typed_response_promise<peer_answer> promise, wire::request what,
                            milliseconds timeout) {
  // The link enforces the deadline. This one only covers a link that ends without an answer.
  request(link, timeout + 1s, call_over_link{std::move(what), timeout})
    .then([promise](peer_answer& answer) mutable { promise.deliver(std::move(answer)); },
          [promise](caf::error& why) mutable { promise.deliver(std::move(why)); });
}

caf::result<peer_connected> switchboard::connect(const connect_address& msg) {
  if (hung_up_)
    return to_caf(ec::shutting_down);
  if (!msg.given && dialled_ && !dialled_->permits(msg.where))
    return to_caf(ec::unreachable, "an announced address that this peer does not dial");
  if (!msg.given && limits_.exhausted(now()))
    return to_caf(ec::overloaded, "too many others are being dialled");
  auto number = ++numbers_;
  auto& dial = dials_[number];
  dial.addresses = {msg.where};
  dial.given = msg.given;
  dial.deadline = now() + msg.timeout;
  auto promise = make_response_promise<peer_connected>();
  dial.connects.push_back(promise);
  try_next_address(number);
  return promise;
}

// -- dials ----------------------------------------------------------------------------------------

/// The dial to `to`, begun if there is none; null if it cannot be dialled.
switchboard::dial_attempt* switchboard::reach(const peer_record& to, milliseconds timeout) {
  if (auto known = dialling_.find(to.id); known != dialling_.end()) {
    auto& dial = dials_.at(known->second);
    dial.deadline = std::max(dial.deadline, now() + timeout);
    return &dial;
  }
  std::deque<endpoint> addresses;
  for (const auto& where : to.addresses)
    if ((!dialled_ || dialled_->permits(where)) && !limits_.failed_lately(where, to.id, now())
        && std::find(addresses.begin(), addresses.end(), where) == addresses.end())
      addresses.push_back(where);
  if (addresses.empty() || hung_up_)
    return nullptr;
  if (limits_.exhausted(now())) {
    ctx_.metrics->count_dial_error(ec::overloaded);
    return nullptr;
  }
  auto number = ++numbers_;
  auto& dial = dials_[number];
  dial.peer = to.id;
  dial.addresses = std::move(addresses);
  dial.deadline = now() + timeout;
  dialling_.emplace(to.id, number);
  try_next_address(number);
  return &dial;
}

/// Dials the next address that may be dialled, and sets when the one after it is due. Ends the dial
/// if none is left.
void switchboard::try_next_address(std::uint64_t number) {
  auto& dial = dials_.at(number);
  ++dial.step;
  auto& all = dial.addresses;
  if (peers_.contains(dial.peer)) // it has dialled us
    all.clear();
  bool permitted = true;
  if (!dial.given) {
    permitted = !limits_.exhausted(now());
    std::erase_if(all, [&](const endpoint& where) {
      auto why = limits_.failed_lately(where, dial.peer, now());
      if (why)
        dial.why = *why;
      return why.has_value();
    });
  }
  auto next = std::find_if(all.begin(), all.end(), [&](const endpoint& where) {
    return dial.given || !limits_.taken(where, dial.peer);
  });
  if (permitted && next != all.end() && now() < dial.deadline) {
    auto where = *next;
    all.erase(next);
    begin_attempt(number, dial, where);
  }
  if (!all.empty() && now() < dial.deadline)
    delayed_send(this, config_.dials_apart, dial_next{number, dial.step});
  else if (dial.under_way.empty())
    give_up(number);
}

void switchboard::begin_attempt(std::uint64_t number, dial_attempt& dial, const endpoint& where) {
  if (!dial.given)
    limits_.begin(where, dial.peer, now());
  dial.under_way.insert(where);
  auto left = std::chrono::duration_cast<milliseconds>(dial.deadline - now());
  auto timeout = std::clamp(left, milliseconds{1}, config_.dial_timeout);
  auto address = caf::actor_cast<caf::weak_actor_ptr>(this);
  transport_->dial(
    {where, dial.given, dial.peer}, timeout,
    [address, number, where, given = dial.given](result<std::shared_ptr<net::link>> made) {
      auto target = caf::actor_cast<caf::strong_actor_ptr>(address);
      dial_ended ended{number, where, !given, made ? *made : nullptr,
                       made ? failure{} : made.error()};
      if (target)
        caf::anon_send(caf::actor_cast<dial_listener_actor>(target), std::move(ended));
      else if (made)
        (*made)->close({ec::shutting_down, {}});
    });
}

void switchboard::on_dial_next(const dial_next& msg) {
  auto found = dials_.find(msg.dial);
  if (found != dials_.end() && found->second.step == msg.step)
    try_next_address(msg.dial);
}

void switchboard::on_dial_ended(const dial_ended& msg) {
  if (msg.announced)
    limits_.end(msg.where, msg.why, now());
  auto found = dials_.find(msg.dial);
  if (found == dials_.end()) { // another address was faster
    if (msg.link)
      enter(msg.link);
    return;
  }
  found->second.under_way.erase(msg.where);
  if (!msg.link) {
    found->second.why = msg.why;
    found->second.refused |= msg.why.code == ec::unreachable;
    return try_next_address(msg.dial);
  }
  auto dial = std::move(found->second);
  dials_.erase(found);
  if (!dial.peer.is_zero())
    dialling_.erase(dial.peer);
  if (dial.given && configured_.size() < config_.links_max)
    configured_.insert(msg.link->remote().id);
  enter(msg.link);
  auto peer = peers_.find(msg.link->remote().id);
  if (peer == peers_.end())
    return refuse_waiting(dial, hung_up_ ? failure{ec::shutting_down, "this peer is stopping"}
                                         : failure{ec::overloaded, std::string{net::no_room}});
  for (auto& promise : dial.connects)
    promise.deliver(peer_connected{peer->second.record});
  send_waiting(used(peer->first, peer->second.connections).actor, dial);
}

void switchboard::give_up(std::uint64_t number) {
  auto dial = std::move(dials_.at(number));
  dials_.erase(number);
  if (!dial.peer.is_zero())
    dialling_.erase(dial.peer);
  refuse_waiting(dial, dial.why);
  log_about about{{.remote = dial.peer, .reason = dial.why.code}};
  ctx_.log->debug("could not reach {}: {}",
                  dial.given ? to_string(*dial.given) : short_name(dial.peer), to_string(dial.why));
}

/// Fails the calls whose deadline passed while they waited for the dial. Other callers may wait
/// longer.
void switchboard::on_dial_overdue(const dial_overdue& msg) {
  auto found = dials_.find(msg.dial);
  if (found == dials_.end())
    return;
  auto time = now();
  std::erase_if(found->second.waiting, [&](auto& item) {
    auto* call = std::get_if<waiting_call>(&item);
    if (call == nullptr || call->deadline > time)
      return false;
    call->promise.deliver(to_caf(ec::timeout, "connecting took too long"));
    return true;
  });
}

/// Sends the messages that waited for `link`, in order.
void switchboard::send_waiting(const peer_link_actor& link, dial_attempt& dial) {
  auto time = now();
  for (auto& item : std::exchange(dial.waiting, {})) {
    if (auto* call = std::get_if<waiting_call>(&item)) {
      auto left = std::chrono::duration_cast<milliseconds>(call->deadline - time);
      if (left <= 0ms)
        call->promise.deliver(to_caf(ec::timeout, "connecting took too long"));
      else
        call_over(link, std::move(call->promise), std::move(call->what), left);
    } else {
      auto& event = std::get<waiting_event>(item);
      send(link, notify_over_link{std::move(event.what), std::move(event.body)});
    }
  }
}

/// Answers all callers that wait for `dial` with the reason why it failed, and tells rounds whose
/// messages are dropped.
void switchboard::refuse_waiting(dial_attempt& dial, const failure& why) {
  for (auto& promise : std::exchange(dial.connects, {}))
    promise.deliver(to_caf(why));
  for (auto& item : std::exchange(dial.waiting, {}))
    if (auto* call = std::get_if<waiting_call>(&item))
      call->promise.deliver(to_caf(why));
    else if (dial.refused && !hung_up_)
      ctx_.rounds->unreached(dial.peer, std::get<waiting_event>(item).what);
}

// -- links ----------------------------------------------------------------------------------------

/// The connection that both sides use: of two that were dialled at once, the one that the peer with
/// the smaller id dialled.
const switchboard::connection& switchboard::used(const peer_id& peer,
                                                 const std::vector<connection>& all) const {
  bool ours = ctx_.record.id < peer;
  for (auto i = all.rbegin(); i != all.rend(); ++i)
    if (i->outbound == ours)
      return *i;
  return all.back();
}

/// Adds an authenticated link, or refuses it. The link of a second process with a known identity
/// waits until the first process was asked for a sign of life.
void switchboard::enter(const std::shared_ptr<net::link>& link) {
  const auto& remote = link->remote();
  auto instance = link->claims().instance;
  if (hung_up_) {
    link->close({ec::shutting_down, "this peer is stopping"});
    return;
  }
  if (auto why = judge(remote.id); why.here.code != ec::none) {
    ctx_.metrics->count_refused_input(why.here.code);
    link->close(why.there);
    return;
  }
  if (auto known = peers_.find(remote.id); known != peers_.end() && instance != 0
                                           && known->second.instance != 0
                                           && instance != known->second.instance) {
    auto older = std::exchange(known->second.newcomer, link);
    if (older)
      older->close({ec::peer_lost, "replaced by a newer connection"});
    else
      ask_for_sign_of_life(remote.id);
    return;
  }
  if (!link->outbound() && dialled_)
    dialled_->reached_from(link->host());
  if (!make_room(*link)) {
    ctx_.metrics->count_refused_input(ec::overloaded);
    link->close({ec::overloaded, std::string{net::no_room}});
    return;
  }
  auto number = ++numbers_;
  auto actor = spawn<peer_link, caf::monitored>(ctx_, config_.link, link, number,
                                                caf::actor_cast<link_owner_actor>(this), services_);
  auto [entry, is_new] = peers_.try_emplace(remote.id);
  auto& peer = entry->second;
  if (is_new)
    peer.record = remote;
  if (instance != 0)
    peer.instance = instance;
  for (const auto& older : peer.connections)
    if (older.outbound == link->outbound())
      send(older.actor, close_link{{ec::peer_lost, "replaced by a newer connection"}, true});
  peer.connections.push_back({number, link, actor, link->outbound(), link->host()});
  if (announced_) // the handshake may have begun before that
    send(actor, notify_over_link{wire::reach_note{*announced_}, {}});
  if (members_changed_ && now() - *members_changed_ < 2 * config_.dial_timeout) // the same
    send(actor, notify_over_link{wire::members_note{ctx_.members->list()->bytes()}, {}});
  if (peer.connections.size() > 1) {
    // Both sides dialled at once: the side that dialled the unused one closes it when idle.
    const auto& wanted = used(remote.id, peer.connections);
    for (const auto& c : peer.connections)
      if (c.number != wanted.number && c.outbound)
        send(c.actor, close_link{{ec::none, "one connection is enough"}, true});
  }
  const auto& in_use = used(remote.id, peer.connections);
  ctx_.links->set(remote.id, in_use.link);
  // A peer that dials repeatedly must not use up all of our links.
  if (peer.connections.size() > config_.links_per_peer_max)
    for (const auto& c : peer.connections)
      if (c.number != in_use.number) {
        ctx_.metrics->count_refused_input(ec::overloaded);
        send(c.actor, close_link{{ec::overloaded, "too many connections"}, false});
        break;
      }
  count_connections();
  if (is_new) {
    ctx_.metrics->count_peer_join();
    log_about about{{.remote = remote.id}};
    ctx_.log_caused("links", now(), spdlog::level::info,
                    "connected to peer " + short_name(remote.id));
    for (const auto& listener : listeners_)
      send(listener, peer_connected{peer.record});
  }
  // The peer reached us before our dial reached it, or our dial will fail.
  if (auto known = dialling_.find(remote.id); known != dialling_.end())
    send_waiting(actor, dials_.at(known->second));
}

void switchboard::on_link_down(const link_down& msg) {
  auto entry = peers_.find(msg.peer);
  if (entry == peers_.end())
    return;
  std::erase_if(entry->second.connections,
                [&](const connection& c) { return c.number == msg.link; });
  if (!entry->second.connections.empty()) {
    const auto& in_use = used(msg.peer, entry->second.connections);
    ctx_.links->set(msg.peer, in_use.link);
    send(in_use.actor, keep_link{});
  }
  if (entry->second.connections.empty()) {
    auto newcomer = std::move(entry->second.newcomer);
    ctx_.links->erase(msg.peer);
    peers_.erase(entry);
    ctx_.metrics->count_peer_departure(msg.why.code);
    // Another process has our identity: each dial ends like this, so it is an error only once.
    bool grave = msg.why.code == ec::duplicate_identity && first_time(msg.peer);
    log_about about{{.remote = msg.peer, .reason = msg.why.code}};
    ctx_.log_caused(grave ? "shared identity" : "lost links", now(),
                    grave ? spdlog::level::err : spdlog::level::info,
                    "lost peer " + short_name(msg.peer) + ": " + to_string(msg.why));
    for (const auto& listener : listeners_)
      send(listener, peer_disconnected{msg.peer, msg.why});
    if (newcomer)
      enter(newcomer);
  }
  if (peers_.empty())
    for (auto& promise : std::exchange(all_ended_, {}))
      promise.deliver(caf::unit);
  count_connections();
}

/// Ours: all peers learn it that we have a link with, which would go on with the one of the
/// handshake. Theirs: our own actors do.
void switchboard::on_record_changed(const peer_record& now) {
  if (now.id == ctx_.record.id) {
    transport_->announce(now);
    announced_ = now;
    for (const auto& [id, peer] : peers_)
      for (const auto& c : peer.connections)
        send(c.actor, notify_over_link{wire::reach_note{now}, {}});
  } else if (auto known = peers_.find(now.id);
             known != peers_.end() && known->second.record != now) {
    known->second.record = now;
    ctx_.links->set_record(now);
    for (const auto& listener : listeners_)
      send(listener, peer_connected{now});
  }
}

// -- two processes with one identity --------------------------------------------------------------

/// True on the first call for `peer`, unless the set is full by then.
bool switchboard::first_time(const peer_id& peer) {
  return shared_identities_.size() < config_.links_max && shared_identities_.insert(peer).second;
}

/// Asks the connected process of `peer` for a sign of life. Any answer is one, even a refusal: only
/// a missing answer or a lost link means that the process is gone.
void switchboard::ask_for_sign_of_life(const peer_id& peer) {
  const auto& connections = peers_.at(peer).connections;
  request(used(peer, connections).actor, config_.identity_timeout + 1s,
          call_over_link{wire::dht_ping{}, config_.identity_timeout})
    .then([this, peer](const peer_answer&) { settle_identity(peer, true); },
          [this, peer](const caf::error& error) {
            auto why = from_caf(error).code;
            bool gone = why == ec::timeout || why == ec::peer_lost || why == ec::shutting_down;
            settle_identity(peer, !gone);
          });
}

/// @param alive whether the connected process of `peer` has given a sign of life.
void switchboard::settle_identity(const peer_id& peer, bool alive) {
  auto entry = peers_.find(peer);
  if (entry == peers_.end() || !entry->second.newcomer)
    return; // its links ended meanwhile, and the newcomer was added
  auto newcomer = std::exchange(entry->second.newcomer, nullptr);
  if (alive) {
    ctx_.metrics->count_refused_input(ec::duplicate_identity);
    if (first_time(peer)) {
      log_about about{{.remote = peer, .reason = ec::duplicate_identity}};
      ctx_.log_caused("refused identities", now(), spdlog::level::warn,
                      "refused a second process with the identity of peer " + short_name(peer)
                        + ", which is connected");
    }
    newcomer->close({ec::duplicate_identity, std::string{net::identity_in_use}});
    return;
  }
  failure why{ec::peer_lost, "the peer was started again"};
  auto old = entry->second.connections;
  for (const auto& c : old) {
    send(c.actor, close_link{why, false});
    on_link_down({peer, c.number, why});
  }
  enter(newcomer);
}

// -- connecting the actors, and the end -----------------------------------------------------------

void switchboard::set_service(const serve& msg) {
  services_.set(msg);
  for (auto& [id, peer] : peers_)
    for (auto& c : peer.connections)
      send(c.actor, msg);
}

void switchboard::add_listener(const listen_links& msg) {
  listeners_.push_back(msg.listener);
  monitor(msg.listener);
  for (const auto& [id, peer] : peers_)
    send(msg.listener, peer_connected{peer.record});
}

caf::result<caf::unit_t> switchboard::hang_up_all() {
  hung_up_ = true;
  for (auto& [id, peer] : peers_) {
    for (auto& c : peer.connections) {
      send(c.actor, notify_over_link{wire::goodbye{}, {}});
      send(c.actor, close_link{{ec::shutting_down, "this peer is stopping"}, false});
    }
    if (auto newcomer = std::exchange(peer.newcomer, nullptr))
      newcomer->close({ec::shutting_down, "this peer is stopping"});
  }
  if (peers_.empty())
    return caf::unit;
  return all_ended_.emplace_back(make_response_promise<caf::unit_t>());
}

void switchboard::on_down(const caf::down_msg& down) {
  std::erase_if(listeners_, [&](const link_listener_actor& listener) {
    return listener.address() == down.source;
  });
  // A peer_link that ends normally has sent link_down before; this handles one that died.
  for (auto& [id, peer] : peers_)
    for (auto& c : peer.connections)
      if (c.actor.address() == down.source)
        return on_link_down({id, c.number, from_caf(down.reason)});
}

} // namespace waggle
