// find_records ─► search: ask the nearest peers for (key) ─► merge ─► found_records
// store_record ─► search: find the nearest peers ─► store at `replicas` of them ─► store_report
// find_peer    ─► search: find the nearest peers ─► is it among them? ─► found_peer
// Every answer and every connection is news for the routing table.

#include "actors/dht_router.hpp"

#include <algorithm>

#include "actors/dht_answers.hpp"
#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = dht_router_impl::stateful_pointer<dht_router_state>;
using search = dht_router_state::search;
using purpose = dht_router_state::search::purpose;

constexpr std::uint64_t unread_bytes_max = 1_MiB;

/// Everything a handler needs, so that the functions below read as what they do.
struct router {
  self_pointer self;
  const node_context& ctx;
  const dht_config& config;
  const switchboard_actor& switchboard;

  dht_router_state& state() const { return self->state; }
  steady_time now() const { return self->clock().now(); }

  // -- routing table ----------------------------------------------------------------------------

  void seen(const peer_record& peer) const {
    if (peer.client_mode || peer.addresses.empty() || peer.id == ctx.record.id)
      return;
    if (auto oldest = state().table->seen(peer, now()))
      ping(*oldest);
    store_unread();
  }

  void ping(const peer_record& peer) const {
    auto sent = ctx.wall->now();
    self
      ->request(switchboard, config.request_timeout + 1s,
                call_peer{peer, wire::dht_ping{}, config.request_timeout})
      .then(
        [self = self, peer, sent, ctx = ctx, config = config,
         board = switchboard](const peer_answer& answer) {
          router{self, ctx, config, board}.seen(peer);
          ctx.metrics->count_dht_request("ping", "out", ec::none);
          if (const auto* pong = std::get_if<wire::dht_pong>(&answer.what)) {
            auto received = ctx.wall->now();
            auto middle = sent + (received - sent) / 2;
            ctx.metrics->set_clock_skew(seconds_of(difference(pong->now, middle)));
          }
        },
        [self = self, peer, ctx = ctx](const caf::error& why) {
          ctx.metrics->count_dht_request("ping", "out", from_caf(why).code);
          self->state.table->failed(peer.id, self->clock().now());
        });
  }

  // -- searches ---------------------------------------------------------------------------------

  bool overloaded() const { return state().searches.size() >= config.searches_max; }

  std::uint64_t begin(purpose why, const dht_id& key, milliseconds timeout) const {
    auto& st = state();
    auto id = ++st.last_search;
    auto seeds = st.table->nearest(key, config.search.beam);
    st.searches.emplace(
      std::piecewise_construct, std::forward_as_tuple(id),
      std::forward_as_tuple(why, key, lookup{key, ctx.record.id, config.search, seeds}, now()));
    self->delayed_send(self, timeout, search_expired{id});
    return id;
  }

  void advance(std::uint64_t id) const {
    auto found = state().searches.find(id);
    if (found == state().searches.end() || found->second.ended || found->second.writing)
      return;
    auto& s = found->second;
    for (const auto& peer : s.way.next())
      ask(id, s, peer);
    if (s.way.finished())
      arrive(id, s);
  }

  void ask(std::uint64_t id, const search& s, const peer_record& peer) const {
    auto began = now();
    wire::dht_find question{{s.key}, s.why != purpose::find};
    self
      ->request(switchboard, config.request_timeout + 1s,
                call_peer{peer, std::move(question), config.request_timeout})
      .then(
        [self = self, ctx = ctx, config = config, board = switchboard, id, peer,
         began](peer_answer& answer) {
          router{self, ctx, config, board}.on_found(id, peer, began, answer);
        },
        [self = self, ctx = ctx, config = config, board = switchboard, id,
         peer](const caf::error& why) {
          router{self, ctx, config, board}.on_find_failed(id, peer, from_caf(why));
        });
  }

  void on_found(std::uint64_t id, const peer_record& peer, steady_time began,
                peer_answer& answer) const {
    auto* reply = std::get_if<wire::dht_found>(&answer.what);
    if (reply == nullptr || reply->answers.size() != 1)
      return on_find_failed(id, peer, {ec::protocol_violation, {}});
    ctx.metrics->count_dht_request("find", "out", ec::none);
    ctx.metrics->observe_dht_request("find", seconds_of(now() - began));
    seen(peer);
    auto found = state().searches.find(id);
    if (found == state().searches.end() || found->second.ended)
      return;
    auto& s = found->second;
    s.way.answered(peer.id, reply->answers[0].nearest);
    if (s.why == purpose::find) {
      for (const auto& entry : reply->answers[0].records)
        take(s, entry);
      if (!s.latest && !s.merge.empty())
        return arrive(id, s);
    }
    if (s.why == purpose::locate) // the peer itself, or somebody who knows it
      for (const auto& known : reply->answers[0].nearest)
        if (known.id == s.peer)
          return end_locate(id, s, known);
    advance(id);
  }

  void on_find_failed(std::uint64_t id, const peer_record& peer, const failure& why) const {
    ctx.metrics->count_dht_request("find", "out", why.code);
    state().table->failed(peer.id, now());
    auto found = state().searches.find(id);
    if (found == state().searches.end())
      return;
    found->second.way.failed(peer.id);
    advance(id);
  }

  /// A record from the network, for a reader: believed only if it belongs to this key.
  void take(search& s, const record& entry) const {
    auto valid = validate_record(ctx.run_id, entry, ctx.wall->now(), *ctx.verifier);
    if (valid && (entry.kind != s.kind || record_key(ctx.run_id, entry.kind, entry.name) != s.key))
      valid = failure{ec::protocol_violation, "a record of another key"};
    if (valid)
      s.merge.add(entry);
    else
      ctx.metrics->count_dht_rejected(valid.error().code);
  }

  void arrive(std::uint64_t id, search& s) const {
    switch (s.why) {
      case purpose::find:
        return end_find(id, s);
      case purpose::locate:
        return end_locate(id, s, std::nullopt);
      case purpose::refresh:
        return end(id, s);
      case purpose::store:
        return begin_writing(id, s);
    }
  }

  void end(std::uint64_t id, search& s) const {
    auto op = s.why == purpose::store ? "put" : "get";
    ctx.metrics->observe_dht_lookup(op, seconds_of(now() - s.began), s.way.hops());
    s.ended = true;
    state().searches.erase(id);
  }

  void end_find(std::uint64_t id, search& s) const {
    auto promise = std::move(s.found);
    found_records answer{s.merge.live(ctx.wall->now())};
    end(id, s);
    promise.deliver(std::move(answer));
  }

  void end_locate(std::uint64_t id, search& s, std::optional<peer_record> where) const {
    auto promise = std::move(s.located);
    auto wanted = s.peer;
    if (!where)
      for (const auto& peer : s.way.nearest(1))
        if (peer.id == wanted)
          where = peer;
    end(id, s);
    if (where)
      promise.deliver(found_peer{*where});
    else
      promise.deliver(to_caf(ec::not_found, "nobody knows peer " + short_name(wanted)));
  }

  // -- storing ----------------------------------------------------------------------------------

  void begin_writing(std::uint64_t id, search& s) const {
    auto& writing =
      s.writing.emplace(s.key, ctx.record, s.way.nearest(config.search.beam), config.replicas);
    if (writing.stored_here())
      writing.answered(state().store->put(s.key, s.entry, ctx.wall->now()));
    go_on_writing(id, s);
  }

  void go_on_writing(std::uint64_t id, search& s) const {
    for (const auto& peer : s.writing->next())
      write(id, s, peer);
    if (s.writing->finished())
      end_store(id, s);
  }

  void write(std::uint64_t id, const search& s, const peer_record& peer) const {
    auto done = [self = self, ctx = ctx, config = config, board = switchboard,
                 id](std::optional<ec> outcome, ec why) {
      ctx.metrics->count_dht_request("store", "out", why);
      auto found = self->state.searches.find(id);
      if (found == self->state.searches.end())
        return;
      auto& s = found->second;
      if (outcome)
        s.writing->answered(*outcome);
      else
        s.writing->failed();
      router{self, ctx, config, board}.go_on_writing(id, s);
    };
    self
      ->request(switchboard, config.request_timeout + 1s,
                call_peer{peer, wire::dht_store{{s.entry}}, config.request_timeout})
      .then(
        [done](const peer_answer& answer) {
          const auto* reply = std::get_if<wire::dht_stored>(&answer.what);
          if (reply != nullptr && reply->outcomes.size() == 1)
            done(reply->outcomes[0], ec::none);
          else
            done(std::nullopt, ec::protocol_violation);
        },
        [done, self = self, peer](const caf::error& why) {
          self->state.table->failed(peer.id, self->clock().now());
          done(std::nullopt, from_caf(why).code);
        });
  }

  void end_store(std::uint64_t id, search& s) const {
    auto promise = std::move(s.stored);
    auto result = s.writing ? s.writing->result() : replication::tally{};
    end(id, s);
    promise.deliver(
      store_report{result.accepted, result.rejected, result.failed, result.last_rejection});
  }

  /// What was stored while nobody was known is stored again, now that there is somebody to keep it.
  void store_unread() const {
    auto& st = state();
    if (st.unheard->size() == 0 || st.table->size() == 0 || overloaded())
      return;
    auto waiting = *std::exchange(st.unheard, record_store{unread_bytes_max});
    for (const auto& key : waiting.keys())
      for (auto& entry : waiting.get(key, ctx.wall->now())) {
        auto id = begin(purpose::store, key, 10s);
        st.searches.at(id).entry = std::move(entry);
        advance(id);
      }
  }

  /// So that those near us know us. One at a time is enough, however many we reach at once.
  void look_up_self() const {
    auto& st = state();
    if (overloaded() || st.searches.contains(st.self_lookup))
      return;
    st.self_lookup = begin(purpose::refresh, dht_id_of(ctx.record.id), 10s);
    advance(st.self_lookup);
  }

  // -- links ------------------------------------------------------------------------------------

  void on_connected(const peer_record& peer) const {
    bool joins = state().joining->on_connected(peer);
    seen(peer);
    ping(peer);
    if (joins)
      look_up_self();
  }

  void on_disconnected(const peer_disconnected& msg) const {
    auto& st = state();
    if (msg.why.code == ec::shutting_down)
      st.table->remove(msg.peer);
    else
      st.table->failed(msg.peer, now());
    st.joining->on_disconnected(msg);
  }

  // -- upkeep -------------------------------------------------------------------------------------

  void refresh(const dht_id& target) const {
    if (!overloaded())
      advance(begin(purpose::refresh, target, 10s));
  }

  dht_status status() const {
    const auto& st = state();
    auto out = st.joining->status();
    out.routing_entries = static_cast<std::uint32_t>(st.table->size());
    out.records = static_cast<std::uint32_t>(st.store->size());
    out.record_bytes = st.store->bytes();
    return out;
  }

  void on_tick() const {
    auto& st = state();
    st.store->purge(ctx.wall->now());
    for (const auto& target : st.table->stale_targets(now() - config.bucket_refresh, *st.random))
      refresh(target);
    ctx.metrics->set_dht(static_cast<double>(st.table->size()),
                         static_cast<double>(st.store->size()),
                         static_cast<double>(st.store->bytes()));
  }

  // -- what other peers ask ----------------------------------------------------------------------

  caf::result<outbound_answer> answer(const inbound_call& msg) const {
    seen(msg.from);
    if (std::holds_alternative<wire::dht_ping>(msg.what)) {
      ctx.metrics->count_dht_request("ping", "in", ec::none);
      return outbound_answer{wire::dht_pong{ctx.wall->now()}, {}};
    }
    if (const auto* find = std::get_if<wire::dht_find>(&msg.what)) {
      ctx.metrics->count_dht_request("find", "in", ec::none);
      return outbound_answer{
        answer_find(*find, msg.from.id, *state().table, *state().store, ctx.wall->now()), {}};
    }
    if (const auto* put = std::get_if<wire::dht_store>(&msg.what)) {
      ctx.metrics->count_dht_request("store", "in", ec::none);
      return outbound_answer{answer_store(*put, ctx, *state().store), {}};
    }
    return to_caf(ec::protocol_violation, "this is not for the DHT");
  }
};

void on_search_expired(const router& r, std::uint64_t id) {
  auto found = r.state().searches.find(id);
  if (found == r.state().searches.end())
    return;
  auto& s = found->second;
  switch (s.why) { // what was found so far is an honest answer; what was not stored is not
    case purpose::find:
      return r.end_find(id, s);
    case purpose::locate:
      return r.end_locate(id, s, std::nullopt);
    case purpose::refresh:
      return r.end(id, s);
    case purpose::store:
      if (s.writing)
        s.writing->give_up();
      return r.end_store(id, s);
  }
}

} // namespace

dht_router_impl::behavior_type dht_router(self_pointer self, node_context ctx, dht_config config,
                                          switchboard_actor switchboard) {
  end_on_exception(self, ctx);
  auto& st = self->state;
  st.random = ctx.randomness("dht-router");
  st.table.emplace(ctx.record.id, config.routing, self->clock().now());
  st.store.emplace(config.store_bytes_max);
  st.joining.emplace(self, ctx, config.joining, switchboard, [self, ctx, config, switchboard] {
    router{self, ctx, config, switchboard}.look_up_self();
  });
  st.unheard.emplace(unread_bytes_max);
  self->delayed_send(self, config.upkeep_interval, table_tick{});
  self->set_down_handler(
    [self](const caf::down_msg& down) { self->state.joining->on_down(down.source); });
  // Each handler makes its router from values that it owns.
  auto with = [self, ctx, config, switchboard](auto&& action) {
    return action(router{self, ctx, config, switchboard});
  };
  return {
    [with](const inbound_call& msg) -> caf::result<outbound_answer> {
      return with([&](const router& r) { return r.answer(msg); });
    },
    [](const inbound_event& msg) { msg.release(); }, // nothing about the DHT travels as an event
    [with, self](store_record& msg) -> caf::result<store_report> {
      return with([&](const router& r) -> caf::result<store_report> {
        auto valid = validate_record(r.ctx.run_id, msg.entry, r.ctx.wall->now(), *r.ctx.verifier);
        if (!valid)
          return to_caf(valid.error());
        if (r.overloaded())
          return to_caf(ec::overloaded, "too many lookups at once");
        auto key = record_key(r.ctx.run_id, msg.entry.kind, msg.entry.name);
        if (self->state.table->size() == 0)
          (void)self->state.unheard->put(key, msg.entry, r.ctx.wall->now());
        auto id = r.begin(purpose::store, key, msg.timeout);
        auto& s = self->state.searches.at(id);
        s.entry = std::move(msg.entry);
        auto promise = self->make_response_promise<store_report>();
        s.stored = promise;
        r.advance(id);
        return promise;
      });
    },
    [with, self](const find_records& msg) -> caf::result<found_records> {
      return with([&](const router& r) -> caf::result<found_records> {
        if (r.overloaded())
          return to_caf(ec::overloaded, "too many lookups at once");
        auto key = record_key(r.ctx.run_id, msg.kind, msg.name);
        auto id = r.begin(purpose::find, key, msg.timeout);
        auto& s = self->state.searches.at(id);
        s.kind = msg.kind;
        s.latest = msg.latest;
        for (const auto& entry : self->state.store->get(key, r.ctx.wall->now()))
          s.merge.add(entry);
        auto promise = self->make_response_promise<found_records>();
        s.found = promise;
        if (!s.latest && !s.merge.empty())
          r.end_find(id, s);
        else
          r.advance(id);
        return promise;
      });
    },
    [with, self](const find_peer& msg) -> caf::result<found_peer> {
      return with([&](const router& r) -> caf::result<found_peer> {
        if (auto known = self->state.table->find(msg.peer))
          return found_peer{*known};
        if (r.overloaded())
          return to_caf(ec::overloaded, "too many lookups at once");
        auto id = r.begin(purpose::locate, dht_id_of(msg.peer), msg.timeout);
        auto& s = self->state.searches.at(id);
        s.peer = msg.peer;
        auto promise = self->make_response_promise<found_peer>();
        s.located = promise;
        r.advance(id);
        return promise;
      });
    },
    [self](const bootstrap_from& msg) { self->state.joining->begin(msg); },
    [with](get_dht_status) { return with([](const router& r) { return r.status(); }); },
    [self](const subscribe_dht_status& msg) { self->state.joining->subscribe(msg.listener); },
    [with](const peer_connected& msg) { with([&](const router& r) { r.on_connected(msg.peer); }); },
    [with](const peer_disconnected& msg) {
      with([&](const router& r) { r.on_disconnected(msg); });
    },
    [with](const search_expired& msg) {
      with([&](const router& r) { on_search_expired(r, msg.search); });
    },
    [self](const retry_bootstrap& msg) { self->state.joining->on_retry(msg); },
    [with, self, config](table_tick again) {
      with([](const router& r) { r.on_tick(); });
      self->delayed_send(self, config.upkeep_interval, again);
    },
  };
}

} // namespace waggle
