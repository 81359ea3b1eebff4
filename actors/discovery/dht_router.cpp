// find_records ─► search: ask the nearest peers for (key) ─► merge ─► found_records
// store_record ─► search: find the nearest peers ─► store at `replicas` of them ─► store_report
// Every answer and every connection updates the routing table. Others are told only of peers that
// were reached at an announced address, or that are behind the same router.

#include "actors/discovery/dht_router.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/net/clock_offset.hpp"

namespace waggle {

namespace {

constexpr std::uint64_t unread_bytes_max = 1_MiB;
constexpr std::size_t forged_max = 3; // records whose signatures do not verify, in one answer

/// Whoever names a peer may name wrong addresses: only there it is silent.
std::string named_at(const peer_record& peer) {
  auto text = to_string(peer.id);
  for (const auto& where : peer.addresses)
    text += ' ' + to_string(where);
  return text;
}

} // namespace

dht_router::dht_router(caf::actor_config& cfg, node_context ctx, dht_config config,
                       switchboard_actor switchboard)
  : dht_router_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    switchboard_(std::move(switchboard)), table_(ctx_.record.id, config_.routing, now()),
    silent_(config_.silence), store_(config_.store), random_(ctx_.randomness("dht-router")),
    joining_(this, ctx_, config_.joining, switchboard_,
             [this](bool reached) { reached ? look_up_self() : reach_.on_dial_failed(); }),
    reach_(
      this, ctx_, config_.reach, switchboard_,
      [this](notice what) { joining_.show_reach(std::move(what)); },
      [this](const peer_id& peer) { on_reached(peer); },
      [this] {
        self_lookup_ = {}; // one that runs does not say where we are now
        look_up_self();
      }),
    punching_(
      this, ctx_, config_.punching, switchboard_,
      [this](const peer_id& peer) { reach_.on_missing(peer); },
      [this](std::vector<notice> all) { joining_.show_punches(std::move(all)); }),
    unread_(unread_bytes_max) {
  end_on_exception(this, ctx_);
}

void dht_router::on_exit() {
  searches_.clear();
  joining_.on_exit();
  reach_.on_exit();
  punching_.on_exit();
  switchboard_ = nullptr;
}

dht_router::behavior_type dht_router::make_behavior() {
  delayed_send(this, config_.upkeep_interval, table_tick{});
  set_down_handler([this](const caf::down_msg& down) { joining_.on_down(down.source); });
  return {
    [this](const inbound_call& msg) { return answer(msg); },
    [this](const inbound_event& msg) { on_event(msg); },
    [this](store_record& msg) { return store(msg); },
    [this](const find_records& msg) { return find(msg); },
    [this](const bootstrap_from& msg) {
      reach_.begin();
      joining_.begin(msg);
    },
    [this](const peer_connected& msg) { on_connected(msg.peer); },
    [this](const peer_disconnected& msg) { on_disconnected(msg); },
    [this](const subscribe_dht_status& msg) { joining_.subscribe(msg.listener); },
    [this](const member_unlinked& msg) {
      if (msg.in_round)
        reach_.on_unlinked(msg);
      punching_.begin(msg.peer.id);
    },
    [this](const port_mapped& msg) { reach_.on_mapped(msg); },
    [this](const punch_due& msg) { punching_.on_due(msg); },
    [this](const punch_ended& msg) { punching_.on_ended(msg); },
    [this](const search_expired& msg) { on_search_expired(msg.search); },
    [this](const retry_bootstrap& msg) { joining_.on_retry(msg); },
    [this](const name_resolved& msg) { joining_.on_resolved(msg); },
    [this](const inquiry_due& msg) { reach_.on_due(msg); },
    [this](const named_peer& msg) {
      if (!ctx_.links->find(msg.peer.id))
        ping(msg.peer);
    },
    [this](table_tick again) {
      on_tick();
      delayed_send(this, config_.upkeep_interval, again);
    },
  };
}

// -- what our own actors ask --------------------------------------------------------------------

caf::result<store_report> dht_router::store(store_record& msg) {
  if (auto valid = check(msg.entry); !valid)
    return to_caf(valid.error());
  if (overloaded())
    return to_caf(ec::overloaded, "too many lookups at once");
  auto key = record_key(ctx_.run_id, msg.entry.kind, msg.entry.name);
  if (table_.size() == 0)
    (void)unread_.put(key, msg.entry, ctx_.wall->now());
  auto id = begin(search::purpose::store, key, msg.timeout);
  auto& s = searches_.at(id);
  s.entry = std::move(msg.entry);
  auto promise = s.stored = make_response_promise<store_report>();
  advance(id);
  return promise;
}

/// A search that runs for the same question answers this one, too.
caf::result<found_records> dht_router::find(const find_records& msg) {
  auto key = record_key(ctx_.run_id, msg.kind, msg.name);
  for (const auto& [id, s] : searches_)
    if (s.key == key && s.why == search::purpose::find && s.latest == msg.latest && s.current
        && s.askers.size() < config_.searches_max)
      return await(id, msg.timeout);
  if (overloaded())
    return to_caf(ec::overloaded, "too many lookups at once");
  auto until = now() + msg.timeout; // before the time at which search_expired comes
  auto id = begin(search::purpose::find, key, msg.timeout);
  auto& s = searches_.at(id);
  s.kind = msg.kind;
  s.latest = msg.latest;
  begin_with_what_is_here(s);
  auto promise = make_response_promise<found_records>();
  s.askers.push_back({until, promise});
  if (!s.latest && !s.merge.empty())
    finish(id, s);
  else
    advance(id);
  return promise;
}

caf::result<found_records> dht_router::await(std::uint64_t id, milliseconds timeout) {
  auto promise = make_response_promise<found_records>();
  auto& s = searches_.at(id);
  s.askers.push_back({now() + timeout, promise});
  delayed_send(this, timeout, search_expired{id});
  for (const auto& entry : store_.get(s.key, ctx_.wall->now())) // stored here meanwhile
    s.merge.add(entry);
  if (!s.latest && !s.merge.empty())
    finish(id, s);
  return promise;
}

// -- routing table ----------------------------------------------------------------------------

/// @param named by others, or some time ago: what the peer itself announces comes first.
void dht_router::seen(const peer_record& named) {
  auto peer = ctx_.links->record(named.id).value_or(named);
  if (peer.client_mode || peer.addresses.empty() || peer.id == ctx_.record.id)
    return table_.remove(peer.id); // it may have become one
  if (auto oldest = table_.seen(peer, now()))
    ping(*oldest);
  auto link = ctx_.links->find(peer.id);
  auto at_its_host = [&](const endpoint& where) { return where.host == link->host(); };
  if (link && link->outbound() && !punching_.has_met(peer.id)
      && (link->host().empty() || std::ranges::any_of(peer.addresses, at_its_host)))
    on_reached(peer.id);
  else if (!table_.is_reached(peer.id))
    reach_.try_to_reach(peer);
  store_unread();
}

/// Tells those of it that nobody else can dial: a peer that joins later never finds them, and they
/// find it now, not when the peer through which they joined is gone.
void dht_router::on_reached(const peer_id& peer) {
  if (table_.is_reached(peer))
    return;
  table_.reached(peer);
  auto known = table_.find(peer);
  if (!known)
    return;
  for (const auto& other : ctx_.links->peers())
    if (other != peer && !table_.is_reached(other))
      ctx_.links->tell(other, wire::reach_note{*known}, {});
}

void dht_router::on_event(const inbound_event& msg) {
  msg.release();
  if (const auto* note = std::get_if<wire::punch_note>(&msg.what))
    return punching_.on_note(*note, msg.from.id);
  const auto* note = std::get_if<wire::reach_note>(&msg.what);
  // Later, as all that it tells of a peer dial that one, and most find it themselves meanwhile.
  if (note != nullptr && !ctx_.links->find(note->peer.id) && !punching_.has_met(msg.from.id)
      && reach_.may_follow(msg.from.id))
    delayed_send(this, 1s + 1ms * static_cast<int>(random_.below(1'000)), named_peer{note->peer});
}

void dht_router::ping(const peer_record& peer) {
  auto sent = ctx_.wall->now();
  request(switchboard_, config_.request_timeout + 1s,
          call_peer{peer, wire::dht_ping{}, config_.request_timeout})
    .then(
      [this, peer, sent](const peer_answer& answer) {
        seen(peer);
        ctx_.metrics->count_dht_request("ping", ec::none);
        if (const auto* pong = std::get_if<wire::dht_pong>(&answer.what)) {
          auto received = ctx_.wall->now();
          if (ctx_.clock_compared)
            ctx_.clock_compared(peer.id, net::least_offset(pong->now, sent, received));
        }
      },
      [this, peer](const caf::error& why) {
        ctx_.metrics->count_dht_request("ping", from_caf(why).code);
        table_.failed(peer.id, clock().now());
      });
}

// -- searches ---------------------------------------------------------------------------------

std::uint64_t dht_router::begin(search::purpose why, const dht_id& key, milliseconds timeout) {
  auto id = ++last_search_;
  auto seeds = table_.nearest(key, config_.search.beam);
  searches_.emplace(
    std::piecewise_construct, std::forward_as_tuple(id),
    std::forward_as_tuple(why, key, lookup{key, ctx_.record.id, config_.search, seeds}, now()));
  delayed_send(this, timeout, search_expired{id});
  return id;
}

void dht_router::advance(std::uint64_t id) {
  auto found = searches_.find(id);
  if (found == searches_.end() || found->second.writing)
    return;
  auto& s = found->second;
  for (auto next = s.way.next(); !next.empty(); next = s.way.next())
    for (const auto& peer : next)
      if (silent_.holds(named_at(peer), now()))
        s.way.failed(peer.id);
      else
        ask(id, s, peer);
  if (s.way.finished())
    s.why == search::purpose::store ? begin_writing(id, s) : finish(id, s);
}

void dht_router::ask(std::uint64_t id, const search& s, const peer_record& peer) {
  auto began = now();
  wire::dht_find question{{s.key}, s.why != search::purpose::find, s.known};
  request(switchboard_, config_.request_timeout + 1s,
          call_peer{peer, std::move(question), config_.request_timeout})
    .then([this, id, peer, began](peer_answer& answer) { on_found(id, peer, began, answer); },
          [this, id, peer](const caf::error& why) { on_find_failed(id, peer, from_caf(why)); });
}

void dht_router::on_found(std::uint64_t id, const peer_record& peer, steady_time began,
                          peer_answer& answer) {
  auto* reply = std::get_if<wire::dht_found>(&answer.what);
  if (reply == nullptr || reply->answers.size() != 1)
    return on_find_failed(id, peer, {ec::protocol_violation, {}});
  ctx_.metrics->count_dht_request("find", ec::none);
  ctx_.metrics->observe_dht_request("find", seconds_of(now() - began));
  silent_.forget(named_at(peer));
  seen(peer);
  auto found = searches_.find(id);
  if (found == searches_.end())
    return;
  auto& s = found->second;
  s.way.answered(peer.id, reply->answers[0].nearest);
  if (s.why == search::purpose::find) {
    std::size_t forged = 0;
    for (const auto& entry : reply->answers[0].records)
      if (take(s, entry) == ec::bad_signature && ++forged == forged_max)
        break; // a peer that checks what it stores has none
    if (forged > 0)
      table_.remove(peer.id);
    if (!s.latest && !s.merge.empty())
      return finish(id, s);
  }
  advance(id);
}

void dht_router::on_find_failed(std::uint64_t id, const peer_record& peer, const failure& why) {
  ctx_.metrics->count_dht_request("find", why.code);
  table_.failed(peer.id, now());
  if (!table_.find(peer.id)) // others may name it for as long as they know it
    silent_.add(named_at(peer), now());
  auto found = searches_.find(id);
  if (found == searches_.end())
    return;
  found->second.way.failed(peer.id);
  advance(id);
}

/// Adds a record from the network to the result, if it is valid and belongs to the search's key.
ec dht_router::take(search& s, const record& entry) {
  auto valid = check(entry);
  if (valid && (entry.kind != s.kind || record_key(ctx_.run_id, entry.kind, entry.name) != s.key))
    valid = failure{ec::protocol_violation, "a record of another key"};
  if (!valid) {
    ctx_.metrics->count_dht_rejected(valid.error().code);
    return valid.error().code;
  }
  s.merge.add(entry);
  return ec::none;
}

void dht_router::finish(std::uint64_t id, search& s) {
  std::string_view op = s.why == search::purpose::store ? "put" : "get";
  ctx_.metrics->observe_dht_lookup(op, seconds_of(now() - s.began), s.way.hops());
  auto ended = searches_.extract(id);
  auto& of = ended.mapped();
  for (auto& each : of.askers)
    each.promise.deliver(found_records{of.merge.live(ctx_.wall->now())});
  bool few = of.merge.newest().size() <= wire::records_per_message_max; // identities cost nothing
  if (of.why == search::purpose::find && of.latest)
    last_found_ = {of.key, few ? std::move(of.merge) : record_merge{}};
  if (of.why != search::purpose::store)
    return;
  for (auto& [other, running] : searches_)
    if (running.key == of.key)
      running.current = false; // whoever asks from now on finds what was stored
  auto result = of.writing ? of.writing->result() : replication::tally{};
  of.stored.deliver(
    store_report{result.accepted, result.rejected, result.failed, result.last_rejection});
}

void dht_router::on_search_expired(std::uint64_t id) {
  auto found = searches_.find(id);
  if (found == searches_.end())
    return;
  if (found->second.writing)
    found->second.writing->give_up(); // missing answers count as failures
  auto& s = found->second;
  if (std::ranges::all_of(s.askers, [&](const auto& each) { return each.until <= now(); }))
    return finish(id, s);
  std::erase_if(s.askers, [&](auto& each) {
    if (each.until > now())
      return false;
    each.promise.deliver(found_records{s.merge.live(ctx_.wall->now())});
    return true;
  });
}

// -- storing ----------------------------------------------------------------------------------

void dht_router::begin_writing(std::uint64_t id, search& s) {
  auto& writing = s.writing.emplace(s.key, ctx_.own_record(), s.way.nearest(config_.search.beam),
                                    config_.replicas);
  if (writing.stored_here())
    writing.answered(store_.put(s.key, s.entry, ctx_.wall->now()));
  go_on_writing(id, s);
}

void dht_router::go_on_writing(std::uint64_t id, search& s) {
  for (const auto& peer : s.writing->next())
    write(id, s, peer);
  if (s.writing->finished())
    finish(id, s);
}

void dht_router::write(std::uint64_t id, const search& s, const peer_record& peer) {
  request(switchboard_, config_.request_timeout + 1s,
          call_peer{peer, wire::dht_store{{s.entry}}, config_.request_timeout})
    .then(
      [this, id](const peer_answer& answer) {
        const auto* reply = std::get_if<wire::dht_stored>(&answer.what);
        if (reply != nullptr && reply->outcomes.size() == 1)
          on_written(id, reply->outcomes[0], ec::none);
        else
          on_written(id, std::nullopt, ec::protocol_violation);
      },
      [this, id, peer](const caf::error& why) {
        table_.failed(peer.id, now());
        on_written(id, std::nullopt, from_caf(why).code);
      });
}

/// @param outcome what the peer did with the record; nothing: it did not answer, because of `why`.
void dht_router::on_written(std::uint64_t id, std::optional<ec> outcome, ec why) {
  ctx_.metrics->count_dht_request("store", why);
  auto found = searches_.find(id);
  if (found == searches_.end())
    return;
  auto& s = found->second;
  if (outcome)
    s.writing->answered(*outcome);
  else
    s.writing->failed();
  go_on_writing(id, s);
}

/// Stores records again that were stored before any other peer was known.
void dht_router::store_unread() {
  if (unread_.size() == 0 || table_.size() == 0 || overloaded())
    return;
  auto waiting = std::exchange(unread_, record_store{unread_bytes_max});
  for (const auto& key : waiting.keys())
    for (auto& entry : waiting.get(key, ctx_.wall->now())) {
      auto id = begin(search::purpose::store, key, 10s);
      searches_.at(id).entry = std::move(entry);
      advance(id);
    }
}

/// Makes this peer known to the peers nearest to it. One lookup at a time is enough, even if
/// several peers are reached at once.
void dht_router::look_up_self() {
  if (overloaded() || searches_.contains(self_lookup_))
    return;
  self_lookup_ = begin(search::purpose::refresh, dht_id_of(ctx_.record.id), 10s);
  advance(self_lookup_);
}

// -- links ------------------------------------------------------------------------------------

void dht_router::on_connected(const peer_record& peer) {
  bool joins = joining_.on_connected(peer);
  punching_.on_connected(peer.id) ? reach_.on_punched(peer.id) : reach_.on_connected(peer.id);
  silent_.forget(named_at(peer));
  seen(peer);
  ping(peer);
  if (joins)
    look_up_self();
}

void dht_router::on_disconnected(const peer_disconnected& msg) {
  if (msg.why.code == ec::shutting_down)
    table_.remove(msg.peer);
  else
    table_.failed(msg.peer, now());
  joining_.on_disconnected(msg);
  reach_.on_disconnected(msg.peer);
  punching_.on_disconnected(msg.peer);
}

// -- upkeep -------------------------------------------------------------------------------------

void dht_router::refresh(const dht_id& target) {
  if (!overloaded())
    advance(begin(search::purpose::refresh, target, 10s));
}

void dht_router::on_tick() {
  reach_.begin(); // the transport tells nobody when it finds a narrow path
  store_.purge(ctx_.wall->now());
  for (const auto& target : table_.stale_targets(now() - config_.bucket_refresh, random_))
    refresh(target);
  ctx_.metrics->set_dht(static_cast<double>(table_.size()), static_cast<double>(store_.size()),
                        static_cast<double>(store_.bytes()));
}

} // namespace waggle
