// trainer ─► report_progress ─► own report ─ signed ─► progress_push to connected peers, store in DHT
// peers' progress_push, DHT ─► checked ─► progress_ledger ─► swarm_progress to the listeners

#include "actors/discovery/progress_tracker.hpp"

#include <algorithm>

#include "actors/guard.hpp"
#include "runtime/core/machine_use.hpp"

namespace waggle {

namespace {

constexpr auto tick_interval = 50ms;
constexpr auto upkeep_interval = 250ms; // of the work that reads the whole ledger
// Between two views because of what others report: a fraction of the shortest epochs.
constexpr auto change_interval_min = 5ms;
// The same, for each peer: several times what it costs to make a view and to process it.
constexpr auto change_interval_per_peer = 20us;
/// A listener that has not processed a view by then delays the others no longer.
constexpr auto listener_patience = 5s;

} // namespace

progress_tracker::progress_tracker(caf::actor_config& cfg, node_context ctx, progress_config config,
                                   switchboard_actor switchboard, dht_router_actor dht)
  : progress_tracker_base(cfg), ctx_(std::move(ctx)), config_(std::move(config)),
    switchboard_(std::move(switchboard)), dht_(std::move(dht)),
    ledger_(ctx_.record.id, config_.ledger), speed_(config_.performance_ema_alpha),
    pace_({config_.push_interval, config_.store_interval, config_.report_ttl}, now()),
    measured_(now()), read_(measured_) {
  end_on_exception(this, ctx_);
}

void progress_tracker::on_exit() {
  switchboard_ = nullptr;
  dht_ = nullptr;
  listeners_.clear();
  view_ = {};
}

progress_tracker::behavior_type progress_tracker::make_behavior() {
  delayed_send(this, tick_interval, progress_tick{});
  set_down_handler([this](const caf::down_msg& down) { remove_listener(down.source); });
  return {
    [](const inbound_call&) -> caf::result<outbound_answer> {
      return to_caf(ec::protocol_violation, "progress answers no requests");
    },
    [this](const inbound_event& msg) { on_event(msg); },
    [this](const report_progress& msg) { report(msg); },
    [this](announce_departure) { leave(); },
    [this](const peer_connected& msg) { on_connected(msg.peer); },
    [this](const peer_disconnected& msg) { on_disconnected(msg.peer); },
    [this](const subscribe_progress& msg) { subscribe(msg.listener); },
    [this](progress_tick again) {
      on_tick();
      delayed_send(this, tick_interval, again);
    },
    [this](progress_news) {
      change_due_ = false;
      if (changed_)
        on_change();
    },
  };
}

// -- what listeners are told ----------------------------------------------------------------------

void progress_tracker::subscribe(const progress_listener_actor& actor) {
  monitor(actor);
  listeners_.push_back({actor});
  notify_listeners();
}

/// The swarm grows by strangers as well, so a larger one is looked at less often.
std::chrono::microseconds progress_tracker::change_interval() const {
  auto peers = static_cast<std::int64_t>(ledger_.size());
  return std::max<std::chrono::microseconds>(change_interval_min, peers * change_interval_per_peer);
}

/// The view has changed without a report of ours.
void progress_tracker::on_change() {
  changed_ = true;
  if (now() >= quiet_until_) {
    quiet_until_ = now() + change_interval();
    notify_listeners();
  } else if (!std::exchange(change_due_, true)) {
    delayed_send(this, quiet_until_ - now(), progress_news{});
  }
}

void progress_tracker::notify_listeners() {
  auto current = view();
  changed_ = false;
  view_ = caf::make_message(std::move(current));
  ++views_;
  send_view();
}

/// Sends the last view to those that have not got it. Nobody gets one that a listener before it has
/// not got: it may ask that one about what it has seen.
void progress_tracker::send_view() {
  for (auto& each : listeners_) {
    if (each.sent == views_)
      continue;
    if (each.busy)
      return;
    each.sent = views_;
    each.busy = true;
    // All receive the same message, without a copy; typed handles would not take it.
    auto processed = [this, actor = each.actor.address()] { on_processed(actor); };
    request(caf::actor_cast<caf::actor>(each.actor), listener_patience, view_)
      .then(processed, [this, processed](const caf::error& why) {
        if (why == caf::sec::request_timeout)
          ctx_.log->warn("a part of this peer has not taken the run's progress for {:.0f} s: this "
                         "machine is overloaded",
                         seconds_of(listener_patience));
        processed();
      });
  }
}

void progress_tracker::on_processed(const caf::actor_addr& actor) {
  for (auto& each : listeners_)
    if (each.actor.address() == actor)
      each.busy = false;
  send_view();
}

/// It has ended, perhaps before it answered.
void progress_tracker::remove_listener(const caf::actor_addr& actor) {
  std::erase_if(listeners_, [&](const listener& each) { return each.actor.address() == actor; });
  send_view();
}

// -- our own report -----------------------------------------------------------------------------

void progress_tracker::report(const report_progress& msg) {
  bool new_epoch = !own_ || own_->epoch != msg.epoch;
  bool other_claim = !own_ || own_->claim.past.branch != msg.claim.past.branch
                     || own_->claim.ready != msg.claim.ready
                     || own_->claim.provisional != msg.claim.provisional;
  bool moved = other_claim || own_->claim.group_size != msg.claim.group_size;
  auto before = new_epoch ? 0 : own_->samples;
  if (msg.samples > before && !new_epoch)
    speed_.update(static_cast<double>(msg.samples - before), seconds_of(now() - measured_));
  measured_ = now();
  pace_.expect(msg.epoch_seconds);
  if (new_epoch)
    pace_.begin(now());
  // Notes only tell of more samples.
  bool less = msg.samples < before
              || (own_ && msg.samples_per_second > 0
                  && msg.samples_per_second < own_->samples_per_second / 2);
  pace_.changed(new_epoch || less || other_claim || own_->parameters != msg.parameters,
                new_epoch || moved, msg.samples, msg.missing);
  auto& own = own_ ? *own_ : own_.emplace();
  own.who = ctx_.own_record();
  own.epoch = msg.epoch;
  own.samples = msg.samples;
  own.samples_per_second =
    msg.samples_per_second > 0 ? msg.samples_per_second : speed_.samples_per_second();
  own.time = ctx_.wall->now();
  own.parameters = msg.parameters;
  own.claim = msg.claim;
  own.vitals = msg.vitals;
  own.vitals.settings = config_.settings;
  own.vitals.share_priority = config_.share_priority;
  if (ctx_.machine) {
    auto place = peer_shares::first_of_machine;
    auto use = ctx_.machine->latest();
    for (const auto& share : {use.memory, use.disk, use.load, use.gpu, use.gpu_memory})
      own.vitals.shares.set(place++, share.value_or(-1));
  }
  own.sketch = msg.sketch;
  if (msg.samples > 0 || msg.claim.group_size > 0)
    active_ = ledger_.global_epoch(own_, ctx_.wall->now());
  send_due(moved);
  notify_listeners();
}

/// Whether our report is published: not if this peer only watches, or has not contributed for more
/// than an epoch.
bool progress_tracker::publishes() const {
  if (!own_ || left_ || !active_)
    return false;
  // Others claim it: it may be any number.
  auto furthest = ledger_.global_epoch(own_, ctx_.wall->now()).value();
  return furthest <= active_->value() || furthest - active_->value() <= 1;
}

record progress_tracker::sign(bool tombstone) {
  record entry{.kind = record_kind::progress,
               .name = config_.name,
               .expiration = ctx_.wall->now() + config_.report_ttl,
               .tombstone = tombstone};
  auto stamp = static_cast<std::uint64_t>(to_nanoseconds(ctx_.wall->now()));
  entry.sequence = last_sequence_ = std::max(stamp, last_sequence_ + 1);
  // Strictly later than the previous report; otherwise readers would ignore it.
  own_->time = swarm_time_from(static_cast<std::int64_t>(entry.sequence));
  if (!tombstone)
    entry.value = encode_progress(*own_);
  sign_record(ctx_.run_id, *ctx_.self, entry);
  return entry;
}

void progress_tracker::tell(const peer_record& peer, const record& entry) {
  // Over the same path as notes, so that they arrive in order.
  if (!ctx_.links->tell(peer.id, wire::progress_push{entry}, {}))
    send(switchboard_, notify_peer{peer, wire::progress_push{entry}, {}});
}

void progress_tracker::send_due(bool at_once) {
  if (at_once || pace_.push_due(now()))
    push();
  else if (pace_.note_due(now(), connected_.size()))
    note();
}

void progress_tracker::note() {
  pace_.noted(now());
  if (!own_ || left_)
    return;
  wire::progress_note note{own_->epoch, own_->claim.past.branch, own_->samples,
                           own_->samples_per_second};
  for (const auto& [id, peer] : connected_)
    if (!ctx_.links->tell(id, note, {}))
      send(switchboard_, notify_peer{peer, note, {}});
}

void progress_tracker::push() {
  pace_.pushed(now());
  if (!own_ || left_)
    return;
  auto entry = sign(false);
  for (const auto& [id, peer] : connected_)
    tell(peer, entry);
}

void progress_tracker::store(const record& entry) {
  pace_.stored(now());
  request(dht_, 11s, store_record{entry, 10s})
    .then([](const store_report&) { /* the DHT's metrics show the outcome */ },
          [this](const caf::error& why) {
            ctx_.log->debug("could not store progress: {}", to_string(from_caf(why)));
          });
}

void progress_tracker::leave() {
  if (std::exchange(left_, true) || !own_)
    return;
  auto entry = sign(true);
  for (const auto& [id, peer] : connected_)
    tell(peer, entry);
  store(entry);
}

// -- what others report ------------------------------------------------------------------------

/// Whether the record changed what is known of its peer.
/// @param host of its sender; empty: it was read from the DHT.
bool progress_tracker::take(const record& entry, bool verified, const std::string& host) {
  if (entry.kind != record_kind::progress || entry.name != config_.name)
    return refuse(ec::protocol_violation);
  if (!verified)
    if (auto valid = validate_record(ctx_.run_id, entry, ctx_.wall->now(), *ctx_.verifier); !valid)
      return refuse(valid.error().code);
  auto who = peer_id::from_raw(entry.subkey);
  if (!who)
    return refuse(ec::malformed);
  if (entry.tombstone)
    return ledger_.forget(*who, swarm_time_from(static_cast<std::int64_t>(entry.sequence)),
                          entry.expiration);
  auto report = decode_progress(entry.owner, *who, entry.value);
  if (!report)
    return refuse(report.error().code);
  // The table of links is ahead of what we are told of them: a link that has just ended may have
  // left reports in our mailbox.
  bool connected = connected_.contains(*who) || ctx_.links->find(*who) != nullptr;
  bool news = ledger_.record(*report, entry.expiration,
                             {ctx_.rounds->has_averaged_with(*who), connected, host});
  count_dropped();
  return news;
}

void progress_tracker::count_dropped() {
  for (; dropped_ < ledger_.dropped(); ++dropped_)
    ctx_.metrics->count_refused_input(ec::overloaded);
}

bool progress_tracker::refuse(ec reason) const {
  ctx_.metrics->count_refused_input(reason);
  return false;
}

void progress_tracker::read() {
  reading_ = true;
  read_ = now();
  request(dht_, 6s, find_records{record_kind::progress, config_.name, true, 5s})
    .then(
      [this](const found_records& found) {
        reading_ = false;
        bool news = false;
        for (const auto& entry : found.records)
          news = take(entry, true) || news;
        if (news)
          on_change();
      },
      [this](const caf::error&) {
        reading_ = false; // the next period tries again
      });
}

void progress_tracker::on_event(const inbound_event& msg) {
  msg.release();
  if (const auto* push = std::get_if<wire::progress_push>(&msg.what)) {
    if (take(push->entry, false, msg.via ? msg.via->host() : std::string{}))
      on_change();
  } else if (const auto* note = std::get_if<wire::progress_note>(&msg.what)) {
    if (ledger_.note(msg.from.id, note->epoch, note->branch, note->samples,
                     note->samples_per_second, ctx_.wall->now()))
      on_change();
  }
}

void progress_tracker::on_tick() {
  send_due(false);
  if (now() - upkept_ < upkeep_interval)
    return;
  upkept_ = now();
  bool expired = ledger_.purge(ctx_.wall->now());
  // No report for long (the trainer averages, or downloads): repeat it before it expires.
  if (pace_.repeat_due(now()) && publishes())
    push();
  if (pace_.store_due(now()) && publishes())
    store(sign(false));
  auto current = view();
  if (expired) // the view changes without a report
    on_change();
  auto since_read = now() - read_;
  if (!reading_ && seconds_of(since_read) >= current.refresh_seconds
      && since_read >= std::min<report_pace::duration>(pace_.between_readings(now()),
                                                       config_.report_ttl / 4))
    read();
  ctx_.metrics->set_peers(static_cast<double>(current.num_peers - current.num_clients),
                          static_cast<double>(current.num_clients),
                          static_cast<double>(current.num_auxiliaries));
}

// -- links ----------------------------------------------------------------------------------------

void progress_tracker::on_connected(const peer_record& peer) {
  connected_[peer.id] = peer;
  ledger_.found_again(peer.id);
  if (own_ && !left_)
    tell(peer, sign(false));
}

void progress_tracker::on_disconnected(const peer_id& peer) {
  connected_.erase(peer);
  // Its reports that are still in the DHT were made before now.
  auto wall = ctx_.wall->now();
  if (ledger_.lose(peer, wall, wall + config_.report_ttl))
    on_change();
}

} // namespace waggle
