// trainer ─► training_status, round_ended   tracker ─► swarm_progress   switchboard ─► links
// DHT ─► dht_status
//                       └──────────────► documents ─► status_board ◄─ HTTP (its own thread)

#include "actors/metrics_exporter.hpp"

#include "actors/guard.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"

namespace waggle {

namespace {

constexpr auto refresh_interval = 100ms;
/// Strangers make the list of peers long: at any length, it costs a few hundredths of a core.
constexpr auto peers_interval_per_peer = 500us;

} // namespace

metrics_exporter::metrics_exporter(caf::actor_config& cfg, node_context ctx,
                                   std::shared_ptr<status_board> board, bool trains)
  : metrics_exporter_base(cfg), ctx_(std::move(ctx)), board_(std::move(board)),
    began_(clock().now()) {
  end_on_exception(this, ctx_);
  if (trains)
    picture_.training = not_started();
}

metrics_exporter::behavior_type metrics_exporter::make_behavior() {
  refresh();
  delayed_send(this, refresh_interval, refresh_documents{});
  return {
    [this](const training_status& msg) {
      bool new_phase = !picture_.training || picture_.training->phase != msg.phase;
      picture_.training = msg;
      if (new_phase) // the rest can wait for the next refresh
        refresh();
    },
    [this](const helper_status& msg) {
      bool changed = !picture_.helper || picture_.helper->clients != msg.clients;
      picture_.helper = msg;
      if (changed)
        refresh();
    },
    [this](const round_ended& msg) { count(msg.report); },
    [this](const state_download_ended& msg) {
      if (!msg.ok)
        ctx_.log->debug("a state download failed after {:.1f} s: {}", msg.seconds,
                        to_string(msg.why));
    },
    [this](const swarm_progress& msg) { picture_.run = msg; },
    [this](const peer_connected& msg) { picture_.connected.insert(msg.peer.id); },
    [this](const peer_disconnected& msg) { picture_.connected.erase(msg.peer); },
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

void metrics_exporter::count(const round_report& report) {
  switch (report.outcome) {
    case round_outcome::complete:
      ++picture_.rounds_complete;
      break;
    case round_outcome::shrunk:
      ++picture_.rounds_shrunk;
      break;
    case round_outcome::failed:
      ++picture_.rounds_failed;
      break;
  }
}

void metrics_exporter::refresh() {
  auto now = clock().now();
  double bandwidth = ctx_.bandwidth ? ctx_.bandwidth->bytes_per_second(now).value_or(0) : 0;
  ctx_.metrics->set_bandwidth(bandwidth);
  peer_facts facts{
    ctx_.record.id, ctx_.run_id,        ctx_.metrics->run(), seconds_of(now - began_),
    bandwidth,      board_->bytes_in(), board_->bytes_out(), board_->bytes_shared()};
  board_->show_status(status_document(picture_, facts));
  if (now >= peers_due_) {
    board_->show_peers(peers_document(picture_, ctx_.record.id));
    peers_due_ =
      now + static_cast<std::int64_t>(picture_.run.peers.size()) * peers_interval_per_peer;
  }
  auto reason = why_not_ready(picture_);
  auto text = reason.empty() ? duties(picture_) : reason;
  if (auto notice = links_notice(picture_); !notice.empty())
    text += (text.empty() ? "" : "; ") + notice;
  board_->show_readiness(reason.empty(), text);
}

} // namespace waggle
