// trainer ─► report_progress ─► own report ─ signed ─► progress_push to connected peers, store in DHT
// peers' progress_push, DHT ─► checked ─► progress_ledger ─► swarm_progress to the listeners

#include "actors/progress_tracker.hpp"

#include <algorithm>

#include "actors/guard.hpp"

namespace waggle {

namespace {

using self_pointer = progress_tracker_impl::stateful_pointer<progress_tracker_state>;

constexpr auto tick_interval = 50ms;
constexpr auto upkeep_interval = 250ms; // what reads the whole ledger

struct clerk {
  self_pointer self;
  const node_context& ctx;
  const progress_config& config;
  const switchboard_actor& switchboard;
  const dht_router_actor& dht;

  progress_tracker_state& state() const { return self->state; }
  steady_time now() const { return self->clock().now(); }
  swarm_progress view() const { return state().ledger->view(state().own, ctx.wall->now()); }

  void tell_listeners() const {
    auto current = view();
    state().told_ready = current.ready;
    for (const auto& listener : state().listeners)
      self->send(listener, current);
  }

  // -- our own report -----------------------------------------------------------------------------

  void report(const report_progress& msg) const {
    auto& st = state();
    bool new_epoch = !st.own || st.own->epoch != msg.epoch;
    bool moved = !st.own || st.own->claim.line.branch != msg.claim.line.branch
                 || st.own->claim.group_size != msg.claim.group_size
                 || st.own->claim.ready != msg.claim.ready
                 || st.own->claim.provisional != msg.claim.provisional;
    auto before = new_epoch ? 0 : st.own->samples;
    if (msg.samples > before && !new_epoch)
      st.speed.update(static_cast<double>(msg.samples - before), seconds_of(now() - st.measured));
    st.measured = now();
    auto& own = st.own ? *st.own : st.own.emplace();
    own.who = ctx.record;
    own.epoch = msg.epoch;
    own.samples = msg.samples;
    own.samples_per_second =
      msg.samples_per_second > 0 ? msg.samples_per_second : st.speed.samples_per_second();
    own.time = ctx.wall->now();
    own.parameters = msg.parameters;
    own.claim = msg.claim;
    if (msg.samples > 0 || msg.claim.group_size > 0)
      st.active = view().global_epoch;
    st.push_due = true;
    st.store_due = st.store_due || new_epoch || moved;
    if (moved || now() - st.pushed >= config.push_interval)
      push();
    else if (now() - st.noted >= note_interval())
      note();
    else
      st.note_due = true;
    tell_listeners();
  }

  /// Peers that only watch, or have not contributed for more than an epoch, are not published.
  bool publishes() const {
    const auto& st = state();
    if (!st.own || st.left || !st.active)
      return false;
    auto furthest = view().global_epoch.value(); // as others say: it may be anything
    return furthest <= st.active->value() || furthest - st.active->value() <= 1;
  }

  record sign(bool tombstone) const {
    auto& st = state();
    record entry;
    entry.kind = record_kind::progress;
    entry.name = config.name;
    entry.tombstone = tombstone;
    entry.expiration = ctx.wall->now() + config.report_ttl;
    auto stamp = static_cast<std::uint64_t>(to_nanoseconds(ctx.wall->now()));
    entry.sequence = st.last_sequence = std::max(stamp, st.last_sequence + 1);
    // Strictly later than the report before, or readers would not take it for news.
    st.own->time = swarm_time_from(static_cast<std::int64_t>(entry.sequence));
    if (!tombstone)
      entry.value = encode_progress(*st.own);
    sign_record(ctx.run_id, *ctx.self, entry);
    return entry;
  }

  void tell(const peer_record& peer, const record& entry) const {
    // By the same way as notes, so that they arrive in order.
    if (!ctx.links->tell(peer.id, wire::progress_push{entry}, {}))
      self->send(switchboard, tell_peer{peer, wire::progress_push{entry}, {}});
  }

  /// The more peers are told, the less often: what they all read together stays bounded.
  milliseconds note_interval() const {
    auto peers = static_cast<std::int64_t>(state().connected.size());
    return peers <= 8 ? 0ms : milliseconds{2 * peers};
  }

  void note() const {
    auto& st = state();
    st.note_due = false;
    st.noted = now();
    if (!st.own || st.left)
      return;
    wire::progress_note note{st.own->epoch, st.own->claim.line.branch, st.own->samples,
                             st.own->samples_per_second};
    for (const auto& [id, peer] : st.connected)
      if (!ctx.links->tell(id, note, {}))
        self->send(switchboard, tell_peer{peer, note, {}});
  }

  void push() const {
    auto& st = state();
    st.push_due = st.note_due = false;
    st.noted = now();
    st.pushed = now();
    if (!st.own || st.left)
      return;
    auto entry = sign(false);
    for (const auto& [id, peer] : st.connected)
      tell(peer, entry);
  }

  void store(const record& entry) const {
    self->request(dht, 11s, store_record{entry, 10s})
      .then([](const store_report&) { /* how many took it shows in the DHT's metrics */ },
            [ctx = ctx](const caf::error& why) {
              ctx.log->debug("could not store progress: {}", to_string(from_caf(why)));
            });
  }

  void say_goodbye() const {
    auto& st = state();
    if (std::exchange(st.left, true) || !st.own)
      return;
    auto entry = sign(true);
    for (const auto& [id, peer] : st.connected)
      tell(peer, entry);
    store(entry);
  }

  // -- what others report ------------------------------------------------------------------------

  /// True if it was news.
  bool take(const record& entry, bool verified) const {
    if (entry.kind != record_kind::progress || entry.name != config.name)
      return refuse(ec::protocol_violation);
    if (!verified)
      if (auto valid = validate_record(ctx.run_id, entry, ctx.wall->now(), *ctx.verifier); !valid)
        return refuse(valid.error().code);
    auto who = peer_id::from_raw(entry.subkey);
    if (!who)
      return refuse(ec::malformed);
    if (entry.tombstone)
      return state().ledger->forget(
        *who, swarm_time_from(static_cast<std::int64_t>(entry.sequence)), entry.expiration);
    auto report = decode_progress(entry.owner, *who, entry.value);
    if (!report)
      return refuse(report.error().code);
    return state().ledger->record(*report, entry.expiration);
  }

  bool refuse(ec reason) const {
    ctx.metrics->count_refused_input(reason);
    return false;
  }

  void read() const {
    auto& st = state();
    st.reading = true;
    st.read = now();
    self->request(dht, 6s, find_records{record_kind::progress, config.name, true, 5s})
      .then(
        [self = self, ctx = ctx, config = config, board = switchboard,
         table = dht](const found_records& found) {
          clerk c{self, ctx, config, board, table};
          self->state.reading = false;
          bool news = false;
          for (const auto& entry : found.records)
            news = c.take(entry, true) || news;
          if (news)
            c.tell_listeners();
        },
        [self = self](const caf::error&) {
          self->state.reading = false; // the next period tries again
        });
  }

  void on_tick() const {
    auto& st = state();
    if (st.push_due && now() - st.pushed >= config.push_interval)
      push();
    else if (st.note_due && now() - st.noted >= note_interval())
      note();
    if (now() - st.tended < upkeep_interval)
      return;
    st.tended = now();
    bool expired = st.ledger->purge(ctx.wall->now());
    // Long without news (the trainer averages, or downloads): say that we are still here.
    if (now() - st.pushed >= config.report_ttl / 2 && publishes())
      push();
    bool stale = now() - st.stored >= config.report_ttl / 2;
    if ((st.store_due || stale) && now() - st.stored >= config.store_interval && publishes()) {
      st.store_due = false;
      st.stored = now();
      store(sign(false));
    }
    auto current = view();
    // Nobody reported, but time passed: a report expired, or the extrapolated target is reached.
    if (expired || current.ready != st.told_ready)
      tell_listeners();
    if (!st.reading && seconds_of(now() - st.read) >= current.refresh_seconds)
      read();
    ctx.metrics->set_peers(static_cast<double>(current.num_peers - current.num_clients),
                           static_cast<double>(current.num_clients),
                           static_cast<double>(current.num_auxiliaries));
  }
};

} // namespace

progress_tracker_impl::behavior_type progress_tracker(self_pointer self, node_context ctx,
                                                      progress_config config,
                                                      switchboard_actor switchboard,
                                                      dht_router_actor dht) {
  end_on_exception(self, ctx);
  auto& st = self->state;
  st.ledger.emplace(ctx.record.id, config.ledger);
  st.speed = throughput{config.performance_ema_alpha};
  st.measured = st.pushed = st.stored = st.read = self->clock().now();
  self->delayed_send(self, tick_interval, progress_tick{});
  auto with = [self, ctx, config, switchboard, dht](auto&& action) {
    return action(clerk{self, ctx, config, switchboard, dht});
  };
  return {
    [](const inbound_call&) -> caf::result<outbound_answer> {
      return to_caf(ec::protocol_violation, "progress answers no requests");
    },
    [with](const inbound_event& msg) {
      msg.release();
      with([&](const clerk& c) {
        if (const auto* push = std::get_if<wire::progress_push>(&msg.what)) {
          if (c.take(push->entry, false))
            c.tell_listeners();
        } else if (const auto* note = std::get_if<wire::progress_note>(&msg.what)) {
          if (c.state().ledger->note(msg.from.id, note->epoch, note->branch, note->samples,
                                     note->samples_per_second, c.ctx.wall->now()))
            c.tell_listeners();
        }
      });
    },
    [with](const report_progress& msg) { with([&](const clerk& c) { c.report(msg); }); },
    [with](get_swarm_progress) { return with([](const clerk& c) { return c.view(); }); },
    [with](say_goodbye) { with([](const clerk& c) { c.say_goodbye(); }); },
    [self, with](const peer_connected& msg) {
      self->state.connected[msg.peer.id] = msg.peer;
      self->state.ledger->found_again(msg.peer.id);
      if (self->state.own && !self->state.left)
        with([&](const clerk& c) { c.tell(msg.peer, c.sign(false)); });
    },
    [self, with, ctx, config](const peer_disconnected& msg) {
      self->state.connected.erase(msg.peer);
      // The reports that the DHT still holds of it were made before now.
      auto now = ctx.wall->now();
      if (self->state.ledger->lose(msg.peer, now, now + config.report_ttl))
        with([](const clerk& c) { c.tell_listeners(); });
    },
    [self, with](const subscribe_progress& msg) {
      self->state.listeners.push_back(msg.listener);
      with([&](const clerk& c) { self->send(msg.listener, c.view()); });
    },
    [self, with](progress_tick again) {
      with([](const clerk& c) { c.on_tick(); });
      self->delayed_send(self, tick_interval, again);
    },
  };
}

} // namespace waggle
