// Out: call_over_link ─ id, deadline ─► wire::call ─► link        notify_over_link ─► wire::event ─► link
// In:  link ─► decode ─ part, round_* ─► round_registry, on the I/O thread
//                  └► frame_arrived ─► wire::answer ─► the caller's promise
//                                        ├► wire::call ─► service ─► wire::answer | refusal ─► link
//                                        └► wire::event ─► service
// Either side: ping ─► pong; silence, by the failure detector ─► the link is closed.

#include "actors/links/peer_link.hpp"

#include <algorithm>
#include <utility>

#include "actors/guard.hpp"
#include "runtime/core/log_about.hpp"

namespace waggle {

namespace {

/// Of a state; see state_donor_config::chunk_bytes.
constexpr std::size_t piece_bytes = 256_KiB;

net::failure_detector_options detector_options(const link_config& config) {
  return {.expected = config.ping_interval,
          .threshold = config.suspicion,
          .silence_max = config.silence_timeout};
}

template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

} // namespace

status check_link_config(const link_config& config) {
  return net::check_failure_detector(detector_options(config));
}

peer_link::peer_link(caf::actor_config& cfg, node_context ctx, link_config config,
                     std::shared_ptr<net::link> link, std::uint64_t number, link_owner_actor owner,
                     service_table services)
  : peer_link_base(cfg), ctx_(std::move(ctx)), config_(config), link_(std::move(link)),
    number_(number), owner_(std::move(owner)), services_(std::move(services)),
    budget_(std::make_shared<net::link_budget>(
      [link = std::weak_ptr<net::link>{link_}, metrics = ctx_.metrics](bool on) {
        if (auto held = link.lock())
          held->hold(on);
        if (on)
          metrics->count_link_hold();
      },
      ctx_.strangers, config_.budget)),
    detector_(detector_options(config_), now()), unread_since_(now()), untaken_since_(now()) {
  end_on_exception(this, ctx_);
}

void peer_link::on_exit() {
  link_->close({ec::shutting_down, {}}); // no effect if it is closed already
  calls_.clear();
  demonitor(owner_.address()); // else the owner keeps this actor's memory as long as it lives
  owner_ = nullptr;
  services_ = {};
}

peer_link::behavior_type peer_link::make_behavior() {
  monitor(owner_); // without the switchboard the link is of no use
  set_down_handler([this](const caf::down_msg&) { quit(); });
  link_->start(std::make_shared<link_reader>(caf::actor_cast<caf::weak_actor_ptr>(this), link_,
                                             ctx_, home_system().clock(), traffic_, budget_));
  plan_check(now() + config_.ping_interval);
  return {
    [this](call_over_link& msg) { return call(msg); },
    [this](notify_over_link& msg) {
      transmit(wire::message{std::move(msg.what)}, std::move(msg.body));
    },
    [this](const close_link& msg) { close(msg); },
    [this](const serve& msg) { services_.set(msg); },
    [this](keep_link) { close_when_unused_.reset(); },
    [this](check_silence) { check(); },
    [this](const call_expired& msg) { on_call_expired(msg.id); },
    [this](frame_arrived& msg) { on_frame(msg); },
    [this](const connection_ended& msg) { on_end(msg.why); },
  };
}

bool peer_link::is_stranger() {
  return !ctx_.rounds->has_averaged_with(link_->remote().id);
}

/// As the peer announces itself now: the handshake may be long ago.
peer_record peer_link::remote() const {
  return ctx_.links->record(link_->remote().id).value_or(link_->remote());
}

void peer_link::transmit(const wire::message& what, payload body) {
  if (!ended_)
    send_frame(wire::encode(what), std::move(body), false);
}

void peer_link::send_frame(std::string header, payload body, bool background) {
  // A link that accepts no more frames is closed: if it lost some of them silently, neither side
  // would know which ones have arrived.
  auto background_bytes = background ? body.size : 0;
  if (link_->send({std::move(header), std::move(body), background}))
    background_queued_ += background_bytes;
  else
    link_->close({ec::overloaded, "the peer does not keep up with what we send"});
  note_unread();
}

// -- our calls ------------------------------------------------------------------------------------

caf::result<peer_answer> peer_link::call(call_over_link& msg) {
  if (ended_)
    return to_caf(*ended_);
  auto id = ++last_call_;
  auto promise = make_response_promise<peer_answer>();
  calls_.emplace(id, own_call{promise, std::holds_alternative<wire::get_state_chunk>(msg.what)});
  count_calls();
  transmit(wire::call{id, static_cast<std::uint32_t>(msg.timeout.count()), std::move(msg.what)});
  delayed_send(this, msg.timeout, call_expired{id});
  return promise;
}

void peer_link::on_answer(wire::answer& answer, const payload& body) {
  if (auto promise = take_call(answer.id))
    promise->deliver(peer_answer{link_->remote().id, std::move(answer.what), body});
  // A caller keeps at most one body per call, so the window can be granted again at once.
  if (body.size > 0)
    link_->grant(body.size);
}

void peer_link::fail_call(std::uint64_t id, const failure& why) {
  if (auto promise = take_call(id))
    promise->deliver(to_caf(why));
}

/// Removes a call of ours. Nothing: it is over.
std::optional<peer_link::answer_promise> peer_link::take_call(std::uint64_t id) {
  auto found = calls_.find(id);
  if (found == calls_.end())
    return std::nullopt;
  auto promise = std::move(found->second.promise);
  calls_.erase(found);
  count_calls();
  return promise;
}

/// So that what we have asked for can arrive, however full the strangers' memory.
void peer_link::count_calls() {
  traffic_->asked = calls_.size();
  traffic_->chunks_asked = static_cast<std::size_t>(std::count_if(
    calls_.begin(), calls_.end(), [](const auto& call) { return call.second.for_chunk; }));
}

void peer_link::on_call_expired(std::uint64_t id) {
  if (!calls_.contains(id))
    return;
  transmit(wire::cancel{id});
  fail_call(id, {ec::timeout, "the peer did not answer in time"});
}

// -- what the peer sends --------------------------------------------------------------------------

void peer_link::on_frame(frame_arrived& content) {
  bool ends = ended_ || bad_signatures_ >= config_.bad_signatures_max;
  if ((ends || !content.message) && content.body.size > 0)
    link_->grant(content.body.size);
  if (ends)
    return;
  if (!content.message) {
    const auto& why = content.message.error();
    ctx_.metrics->count_refused_input(why.code);
    log_about about{{.remote = link_->remote().id, .reason = why.code}};
    ctx_.log_caused("refused messages", clock().now(), spdlog::level::warn,
                    "peer " + short_name(link_->remote().id)
                      + " sent a message that we refuse: " + to_string(why));
    return link_->close(why);
  }
  auto& body = content.body;
  std::visit(
    overloaded{
      [&](wire::call& call) { on_call(call, std::move(content.ticket)); },
      [&](wire::answer& answer) { on_answer(answer, body); },
      [&](const wire::refusal& refusal) { fail_call(refusal.id, refusal.why); },
      [&](const wire::cancel& cancel) {
        // The service continues, but its answer is discarded.
        if (auto found = inbound_calls_.find(cancel.id); found != inbound_calls_.end())
          found->second = false;
      },
      [&](const wire::ping& ping) { transmit(wire::pong{ping.nonce}); },
      [&](const wire::pong& pong) { on_pong(pong); },
      [&](wire::event& event) { on_event(event, std::move(body), std::move(content.ticket)); },
    },
    *content.message);
}

void peer_link::on_call(wire::call& call, std::shared_ptr<void> ticket) {
  if (const auto* store = std::get_if<wire::dht_store>(&call.what))
    if (!std::all_of(store->records.begin(), store->records.end(),
                     [this](const record& entry) { return is_genuine(entry); })) {
      refuse(call.id, {ec::bad_signature, "record"});
      return refuse_signature();
    }
  auto service = services_.find(call.what);
  if (!service)
    return refuse(call.id, {ec::not_ready, "this peer does not serve that (yet)"});
  if (inbound_calls_.size() >= config_.inbound_calls_max)
    return refuse(call.id, {ec::overloaded, "too many open requests"});
  bool for_piece = std::holds_alternative<wire::get_state_chunk>(call.what);
  if (for_piece && !may_ask_for_piece())
    return refuse(call.id, {ec::overloaded, "read the earlier pieces first"});
  if (!inbound_calls_.emplace(call.id, true).second)
    return violate("a call id is used twice");
  pieces_wanted_ += for_piece ? 1 : 0;
  auto patience =
    std::clamp(milliseconds{call.deadline_ms}, milliseconds{1}, config_.inbound_deadline_max);
  request(service, patience,
          inbound_call{remote(), std::move(call.what), link_->host(), std::move(ticket)})
    .then(
      [this, id = call.id, for_piece](outbound_answer& what) {
        pieces_wanted_ -= for_piece ? 1 : 0;
        if (take_inbound(id))
          answer(id, what);
      },
      [this, id = call.id, for_piece](const caf::error& why) {
        pieces_wanted_ -= for_piece ? 1 : 0;
        auto reason = from_caf(why);
        reason.detail.resize(std::min(reason.detail.size(), wire::detail_bytes_max));
        if (take_inbound(id))
          refuse(id, std::move(reason));
      });
}

/// A piece takes memory from when the donor reads it.
void peer_link::note_unread() {
  auto facts = link_->facts();
  budget_->unread(facts.unsent_bytes, facts.unsent_background_bytes + pieces_wanted_ * piece_bytes);
}

bool peer_link::may_ask_for_piece() {
  note_unread();
  return budget_->may_answer(0, piece_bytes);
}

void peer_link::answer(std::uint64_t id, outbound_answer& what) {
  if (ended_)
    return;
  auto header = wire::encode(wire::answer{id, std::move(what.what)});
  note_unread();
  // A piece has had its place since it was asked for.
  if (!budget_->may_answer(header.size(), what.body.size > piece_bytes ? what.body.size : 0))
    return refuse(id, {ec::overloaded, "read the earlier answers first"});
  if (is_stranger())
    budget_->charge(net::work{static_cast<net::work::rep>(header.size() / net::cost::byte_part)},
                    now());
  // The only bodies in answers are pieces of a state, which rounds do not wait for.
  send_frame(std::move(header), std::move(what.body), true);
}

/// Removes a call of the peer that a service has processed. True if the peer still wants the
/// answer.
bool peer_link::take_inbound(std::uint64_t id) {
  auto found = inbound_calls_.find(id);
  if (found == inbound_calls_.end())
    return false;
  bool wanted = found->second;
  inbound_calls_.erase(found);
  return wanted;
}

void peer_link::on_event(wire::event& event, payload body, std::shared_ptr<void> ticket) {
  if (const auto* push = std::get_if<wire::progress_push>(&event))
    if (push->entry.subkey != link_->remote().id.raw() || !is_genuine(push->entry))
      return refuse_signature(); // peers push their own reports only
  if (std::holds_alternative<wire::goodbye>(event)) {
    departure_announced_ = true; // the peer closes the link next
    return;
  }
  if (const auto* note = std::get_if<wire::reach_note>(&event);
      note != nullptr && note->peer.id == link_->remote().id) {
    ctx_.links->set_record(note->peer); // before its next message
    return send(owner_, record_changed{note->peer});
  }
  if (const auto* note = std::get_if<wire::members_note>(&event)) {
    auto taken = ctx_.members ? ctx_.members->take(note->list) : result<bool>{false};
    if (!taken) {
      ctx_.metrics->count_refused_input(taken.error().code);
      link_->close(taken.error());
    }
    return;
  }
  auto service = services_.find(event);
  inbound_event message{remote(), std::move(event), std::move(body), link_, std::move(ticket)};
  if (service)
    send(service, std::move(message));
  else
    message.release();
}

/// Whether the record's signature verifies, or it has none. This actor checks it, so that forged
/// records delay nobody but their sender; the service's own check finds the result in the
/// verifier's cache.
bool peer_link::is_genuine(const record& entry) const {
  return (entry.owner.is_zero() && entry.by.is_zero())
         || ctx_.verifier->verify(entry.owner, as_byte_span(signed_bytes(ctx_.run_id, entry)),
                                  entry.by);
}

void peer_link::refuse_signature() {
  ctx_.metrics->count_refused_input(ec::bad_signature);
  if (++bad_signatures_ < config_.bad_signatures_max)
    return;
  link_->hold(true); // what is under way is not looked at any more
  link_->close({ec::bad_signature, "too many records whose signatures do not verify"});
}

void peer_link::on_pong(const wire::pong& pong) {
  if (ping_nonce_ == 0 || pong.nonce != ping_nonce_)
    return;
  ping_nonce_ = 0;
  arrived_before_ = pinged_;
  auto time = now();
  ctx_.metrics->observe_rtt(seconds_of(time - pinged_));
  // `check` sees the last frame only: a peer whose pings come now just before it, now just after,
  // would seem to be silent for two intervals. Later than the check is due, this process was
  // suspended.
  if (time <= check_due_ && time - detector_.last_seen() >= config_.ping_interval * 3 / 4)
    detector_.received(time);
}

void peer_link::refuse(std::uint64_t id, failure why) {
  transmit(wire::refusal{id, std::move(why)});
}

void peer_link::violate(std::string what) {
  ctx_.metrics->count_refused_input(ec::protocol_violation);
  link_->close({ec::protocol_violation, std::move(what)});
}

// -- signs of life, and the end -------------------------------------------------------------------

void peer_link::plan_check(steady_time when) {
  check_due_ = when;
  delayed_send(this, when - now(), check_silence{});
}

void peer_link::check() {
  if (ended_)
    return;
  auto time = now();
  // If this check is late, this process did not run for a while, and what the peer sent meanwhile
  // may not have been read yet.
  if (auto late = time - check_due_; late > config_.ping_interval / 2) {
    detector_.slept(late);
    unread_since_ = time;
    untaken_since_ = time;
  }
  note_unread();
  budget_->retry(time);
  auto facts = link_->facts();
  if (is_stranger() && !(keeps_reading(facts, time) && takes_bodies(facts, time)))
    return link_->close({ec::overloaded, "the peer does not read what we send"});
  bool held = budget_->held();
  auto frames = traffic_->frames.load();
  bool more = facts.reads != std::exchange(reads_checked_, facts.reads);
  if (frames != std::exchange(frames_checked_, frames))
    detector_.received(steady_time{steady_time::duration{traffic_->received.load()}});
  else if (more || held)
    detector_.received(time); // of a frame that is not whole yet, or that we do not read yet
  if (detector_.suspects(time)) {
    auto silent = std::chrono::duration_cast<milliseconds>(time - detector_.last_seen());
    link_->close(
      {ec::timeout, "the peer sent nothing for " + std::to_string(silent.count()) + " ms"});
    return;
  }
  if (close_when_unused_ && is_unused()) {
    link_->close(*close_when_unused_);
    return;
  }
  // While the link is held, the peer gets no pong: our pings are its signs of life.
  if (ping_nonce_ == 0 || held || time - detector_.last_seen() >= config_.ping_interval) {
    ping_nonce_ = ping_nonce_ == 0 ? ++last_call_ : ping_nonce_;
    pinged_ = time;
    transmit(wire::ping{ping_nonce_});
  }
  plan_check(std::min<steady_time>(time + config_.ping_interval, detector_.suspect_at()));
}

/// False: for longer than the silence timeout, what waits for the peer has not become less. An idle
/// link has nothing that waits. Only for strangers: what waits for them takes memory from others.
bool peer_link::keeps_reading(const net::link_facts& facts, steady_time time) {
  auto unread = facts.unsent_bytes;
  if (unread == 0 || unread < std::exchange(unread_checked_, unread))
    unread_since_ = time;
  return time - unread_since_ < config_.silence_timeout;
}

/// False: pieces of a state wait for the peer, and for longer than the silence timeout it has let
/// us write nothing of any body. It may read everything else, and never extend its window.
bool peer_link::takes_bodies(const net::link_facts& facts, steady_time time) {
  auto waiting = facts.unsent_background_bytes;
  // Bodies that go through shared memory count when they leave the queue, others while they are
  // written, too.
  auto taken = background_queued_ - waiting + facts.body_bytes_written;
  if (taken != std::exchange(taken_checked_, taken) || waiting == 0)
    untaken_since_ = time;
  return time - untaken_since_ < config_.silence_timeout;
}

/// Whether a link that is to close when idle has not been used for `unused_for`, and everything
/// that was sent over it has arrived.
bool peer_link::is_unused() {
  auto time = now();
  auto wanted = [](const auto& call) { return call.second; };
  if (!calls_.empty() || !link_->idle()
      || std::any_of(inbound_calls_.begin(), inbound_calls_.end(), wanted))
    last_use_ = time;
  last_use_ = std::max(last_use_, steady_time{steady_time::duration{traffic_->used.load()}});
  // `last_use_` is only known up to an interval of the checks. A ping that was sent a whole
  // interval after it, and was answered, followed everything that was written until then.
  return time - last_use_ >= config_.unused_for
         && arrived_before_ >= last_use_ + config_.ping_interval;
}

void peer_link::close(const close_link& msg) {
  if (!msg.when_idle)
    return link_->close(msg.why);
  close_when_unused_ = msg.why;
  last_use_ = now();
}

void peer_link::on_end(failure why) {
  if (ended_)
    return;
  if (departure_announced_)
    why = {ec::shutting_down, "the peer said goodbye"};
  ended_ = why;
  budget_->unread(0, 0);
  for (auto& [id, call] : std::exchange(calls_, {}))
    call.promise.deliver(to_caf(why.code == ec::none ? failure{ec::peer_lost, {}} : why));
  send(owner_, link_down{link_->remote().id, number_, why});
  quit();
}

} // namespace waggle
