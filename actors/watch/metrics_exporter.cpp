// trainer ─► training_status, round_ended   tracker ─► swarm_progress   switchboard ─► links
// DHT ─► dht_status
//                       └──────────────► documents ─► status_board ◄─ HTTP (its own thread)

#include "actors/watch/metrics_exporter.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "actors/guard.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"
#include "runtime/core/log_about.hpp"
#include "runtime/core/version.hpp"
#include "runtime/status/run_curves.hpp"
#include "runtime/watch/round_event.hpp"

namespace waggle {

namespace {

constexpr auto refresh_interval = 100ms;
/// Strangers make the list of peers long: at any length, it costs a few hundredths of a core.
constexpr auto peers_interval_per_peer = 500us;
constexpr auto links_interval = 1s;

/// The run's, for people.
const std::string& name_in(const node_context& ctx) {
  return ctx.label.empty() ? ctx.run_id : ctx.label;
}

/// Of the members of the round; others could be strangers.
std::map<peer_id, double> pass_seconds_of(const watch::round_ended& round,
                                          const swarm_progress& run, const peer_id& self) {
  std::map<peer_id, reported_pass> reports;
  bool by_samples = false;
  for (const auto& peer : run.peers) {
    if (peer.who.id == self)
      by_samples = peer.claim.target_batch_size > 0;
    bool member = std::any_of(round.members.begin(), round.members.end(),
                              [&](const auto& m) { return m.peer == peer.who.id; });
    if (member && peer.vitals.pass_seconds)
      reports[peer.who.id] = {*peer.vitals.pass_seconds, peer.samples_per_second};
  }
  return comparable_passes(reports, by_samples);
}

} // namespace

metrics_exporter::metrics_exporter(caf::actor_config& cfg, node_context ctx,
                                   std::shared_ptr<status_board> board, bool trains, bool auxiliary)
  : metrics_exporter_base(cfg), ctx_(std::move(ctx)), board_(std::move(board)),
    began_(clock().now()) {
  end_on_exception(this, ctx_);
  if (trains)
    picture_.training.emplace();
  trains_ = trains && !auxiliary;
  show_self();
}

/// Of an exporter that was started again, the events go on.
void metrics_exporter::show_self() {
  auto role = role_name(trains_, ctx_.own_record().client_mode);
  if (role == std::exchange(picture_.role, role) && shown_self_)
    return;
  shown_self_ = true;
  nlohmann::ordered_json self{{"peer", to_string(ctx_.record.id)},
                              {"run", name_in(ctx_)},
                              {"role", picture_.role},
                              {"version", version}};
  board_->show(status_board::document::self,
               self.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  if (ctx_.events && ctx_.events->last() == 0)
    ctx_.note(watch::started{std::string{version}, name_in(ctx_), std::string{picture_.role}});
}

metrics_exporter::behavior_type metrics_exporter::make_behavior() {
  refresh();
  delayed_send(this, refresh_interval, refresh_documents{});
  return {
    [this](const training_status& msg) {
      bool new_phase = !picture_.training || picture_.training->phase != msg.phase;
      note(board_->maker().on_status(msg, clock().now()));
      if (ctx_.curves)
        ctx_.curves->on_status(msg, picture_.run, ctx_.wall->now());
      picture_.training = msg;
      board_->show_training(msg);
      if (new_phase) // the rest can wait for the next refresh
        refresh();
    },
    [this](const helper_status& msg) {
      bool changed = !picture_.helper || picture_.helper->clients != msg.clients;
      picture_.helper = msg;
      if (changed)
        refresh();
    },
    [this](const round_ended& msg) { watch_round(msg.report, msg.spans); },
    [this](const state_download_ended& msg) {
      watch::state_moved moved{false,       std::nullopt, msg.bytes,
                               msg.seconds, std::nullopt, msg.ok ? "complete" : to_string(msg.why)};
      if (!msg.donor.is_zero())
        moved.other = msg.donor;
      if (msg.ok)
        moved.epoch = msg.epoch.value();
      ctx_.note(moved);
      log_about about{{.remote = msg.donor, .reason = msg.why.code, .seconds = msg.seconds}};
      if (!msg.ok)
        ctx_.log->debug("a state download failed after {:.1f} s: {}", msg.seconds,
                        to_string(msg.why));
    },
    [this](const swarm_progress& msg) { picture_.run = msg; },
    [this](const peer_connected& msg) { on_connected(msg.peer); },
    [this](const peer_disconnected& msg) {
      picture_.connected.erase(msg.peer);
      note(board_->maker().on_disconnected(msg.peer, msg.why, clock().now(), ctx_.wall->now()));
      peers_due_ = std::min(peers_due_, clock().now() + 500ms); // soon, however many leave
    },
    [this](const dht_status& msg) {
      picture_.dht = msg;
      refresh();
    },
    [this](refresh_documents again) {
      refresh();
      delayed_send(this, refresh_interval, again);
    },
  };
}

void metrics_exporter::watch_round(const round_report& report, const std::string& spans) {
  ++(report.outcome == round_outcome::complete ? picture_.rounds_complete
     : report.outcome == round_outcome::shrunk ? picture_.rounds_shrunk
                                               : picture_.rounds_failed);
  for (const auto& fault : report.faults)
    ctx_.note(watch::member_lost{fault.peer, report.round, std::string{to_string(fault.reason)}});
  auto spent = watch::phases_of(report);
  ctx_.metrics->count_round_phase("search", spent.search);
  ctx_.metrics->count_round_phase("contributions", spent.contributions);
  ctx_.metrics->count_round_phase("results", spent.results);
  ctx_.metrics->count_round_phase("agreement", spent.agreement);
  if (report.round.is_zero())
    return;
  auto now = clock().now();
  auto ago = report.marks ? now - report.marks->began : steady_time::duration{};
  auto event = watch::event_of(
    report,
    watch::unix_ms(ctx_.wall->now() - std::chrono::duration_cast<swarm_clock::duration>(ago)),
    [this](const peer_id& peer) {
      auto link = ctx_.links ? ctx_.links->find(peer) : nullptr;
      return link ? link->facts().round_trip : std::chrono::microseconds{0};
    });
  event.spans = spans;
  ctx_.note(event);
  if (!trains_ && std::ranges::count(report.contributors, ctx_.record.id) == 0)
    return; // a helper has nothing with which others compare
  auto passes = pass_seconds_of(event, picture_.run, ctx_.record.id);
  picture_.slow = board_->maker().slow_rounds().add(std::move(event), passes, now);
  auto changed = board_->maker().on_slow(picture_.slow);
  for (const auto& each : changed)
    if (const auto* slow = std::get_if<watch::slow>(&each)) {
      log_about about{{.round = report.round, .remote = slow->other}};
      ctx_.log_caused("slow peers", now, spdlog::level::info,
                      slow->cause.empty()
                        ? "peer " + short_name(slow->other) + " is not slow any more"
                        : "peer " + short_name(slow->other) + " is slow: " + slow->text);
    }
  note(changed);
}

void metrics_exporter::on_connected(const peer_record& peer) {
  auto link = ctx_.links ? ctx_.links->find(peer.id) : nullptr;
  if (link && link->claims().looks)
    return;
  picture_.connected.insert(peer.id);
  // Usually, whether a peer on this host shares memory is found out a moment later.
  note(board_->maker().on_connected(
    peer, link && link->facts().shares_memory ? "shared memory" : "", clock().now()));
}

/// The traffic since the last time, and what was refused.
void metrics_exporter::watch_links() {
  auto now = clock().now();
  // Who left while an exporter before this one was down. Links are told of at once at the start.
  if (links_watched_ != steady_time{})
    for (const auto& [peer, since] : std::map{board_->maker().present()})
      if (!picture_.connected.contains(peer))
        note(board_->maker().on_disconnected(peer, {ec::peer_lost, "not seen leaving"}, now,
                                             ctx_.wall->now()));
  auto seconds = seconds_of(now - links_watched_);
  links_watched_ = now;
  picture_.links.clear();
  std::map<peer_id, net::link_facts> carried;
  for (const auto& peer : picture_.connected) {
    auto link = ctx_.links ? ctx_.links->find(peer) : nullptr;
    if (!link)
      continue;
    auto facts = link->facts();
    auto& rates = picture_.links[peer];
    rates.rtt_ms = std::chrono::duration<double, std::milli>(facts.round_trip).count();
    rates.shares_memory = facts.shares_memory;
    rates.encrypted = facts.encrypted;
    auto host = link->host();
    bool here = host.empty() || host == "::1" || host.starts_with("127.");
    rates.exposed = !facts.encrypted && !here;
    // A link that replaced another one begins to count anew.
    if (auto before = carried_.find(peer); before != carried_.end()) {
      auto per_second = [&](std::uint64_t a, std::uint64_t b) {
        return b < a ? 0.0 : static_cast<double>(b - a) / seconds;
      };
      rates.bytes_in_per_s = per_second(before->second.bytes_in, facts.bytes_in);
      rates.bytes_out_per_s = per_second(before->second.bytes_out, facts.bytes_out);
    }
    carried.emplace(peer, facts);
  }
  carried_ = std::move(carried);
  std::array<std::uint64_t, ec_max + std::size_t{1}> refused{};
  for (std::size_t i = 0; i < refused.size(); ++i)
    refused[i] = ctx_.metrics->refused_so_far(static_cast<ec>(i));
  note(board_->maker().on_refused(refused, now));
}

void metrics_exporter::note(const event_maker::events& all) const {
  for (const auto& each : all)
    ctx_.note(each);
}

void metrics_exporter::refresh() {
  auto now = clock().now();
  show_self();
  double bandwidth = ctx_.bandwidth ? ctx_.bandwidth->bytes_per_second(now).value_or(0) : 0;
  ctx_.metrics->set_unreachable(ctx_.reach->as_client());
  peer_facts facts{
    ctx_.record.id, name_in(ctx_),      ctx_.metrics->run(), seconds_of(now - began_),
    bandwidth,      board_->bytes_in(), board_->bytes_out(), board_->bytes_shared()};
  if (ctx_.actors)
    facts.actors = ctx_.actors->kinds();
  facts.clock_skew = board_->clock_skew();
  facts.ranks = board_->ranks();
  if (ctx_.machine)
    facts.machine = ctx_.machine->look(now);
  if (now - links_watched_ >= links_interval)
    watch_links();
  using document = status_board::document;
  board_->show(peer_view{picture_, facts}, ctx_.wall->now());
  if (now >= peers_due_) {
    picture_.left = board_->maker().departures(now);
    picture_.present = board_->maker().present();
    board_->show(document::targets,
                 targets_document(picture_, ctx_.own_record(), ctx_.metrics->run()));
    board_->show(document::peers, peers_document(picture_, ctx_.record.id, ctx_.wall->now()));
    peers_due_ =
      now + static_cast<std::int64_t>(picture_.run.peers.size()) * peers_interval_per_peer;
  }
  auto reason = why_not_ready(picture_);
  auto text = reason.empty() ? duties(picture_) : reason;
  if (auto notice = links_notice(picture_); !notice.empty())
    text += (text.empty() ? "" : "; ") + notice;
  board_->show_readiness(reason.empty(), text);
}

report_relay_actor::behavior_type
report_relay(report_relay_actor::stateful_pointer<metrics_exporter_actor> self,
             const metrics_exporter_actor& exporter) {
  self->state = exporter;
  auto pass_on = [self](const auto& report) { self->send(self->state, report); };
  return {
    [self](const report_to& msg) { self->state = msg.exporter; },
    [pass_on](const training_status& msg) { pass_on(msg); },
    [pass_on](const helper_status& msg) { pass_on(msg); },
    [pass_on](const round_ended& msg) { pass_on(msg); },
    [pass_on](const state_download_ended& msg) { pass_on(msg); },
    [pass_on](const swarm_progress& msg) { pass_on(msg); },
    [pass_on](const peer_connected& msg) { pass_on(msg); },
    [pass_on](const peer_disconnected& msg) { pass_on(msg); },
  };
}

} // namespace waggle
