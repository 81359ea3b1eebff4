// trainer ─► training_status, round_ended   tracker ─► swarm_progress   switchboard ─► links
// DHT ─► dht_status
//                       └──────────────► documents ─► status_board ◄─ HTTP (I/O thread)

#include "actors/metrics_exporter.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "actors/guard.hpp"
#include "runtime/averaging/bandwidth_estimator.hpp"
#include "runtime/core/version.hpp"

namespace waggle {

namespace {

using self_pointer = metrics_exporter_impl::stateful_pointer<metrics_exporter_state>;
using json = nlohmann::ordered_json;

constexpr auto refresh_interval = 100ms;

json number_or_null(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

/// The status before the trainer's first report.
training_status not_started() {
  training_status s;
  s.loss = s.first_loss = std::numeric_limits<double>::quiet_NaN();
  return s;
}

/// The speed that this peer reported last; null before its first report.
json reported_speed(const metrics_exporter_state& st, const node_context& ctx) {
  for (const auto& peer : st.run.peers)
    if (peer.who.id == ctx.record.id)
      return number_or_null(peer.samples_per_second);
  return nullptr;
}

json status_document(const metrics_exporter_state& st, const node_context& ctx,
                     const status_board& board, double uptime, double bandwidth) {
  const auto& t = st.training;
  auto of_training = [&](auto field) { return t ? json(field(*t)) : json(nullptr); };
  /// 0 stands for a missing value until the peer has done some work itself.
  auto of_work = [&](double value, std::uint64_t work) {
    return value == 0 && work == 0 ? json(nullptr) : number_or_null(value);
  };
  json doc;
  doc["peer"] = to_string(ctx.record.id);
  doc["run"] = ctx.run_id;
  doc["version"] = version;
  doc["phase"] = t ? std::string{to_string(t->phase)} : "node";
  doc["epoch"] = of_training([](const auto& s) { return s.epoch.value(); });
  doc["global_epoch"] = st.run.global_epoch.value();
  doc["samples_toward_epoch"] = of_training([](const auto& s) { return s.samples_toward_epoch; });
  doc["target_batch_size"] =
    t && t->target_batch_size > 0 ? json(t->target_batch_size) : json(nullptr);
  doc["loss"] = t ? of_work(t->loss, t->steps) : json(nullptr);
  doc["first_loss"] = t ? number_or_null(t->first_loss) : json(nullptr);
  doc["samples"] = {{"used", t ? t->samples_used : 0}, {"dropped", t ? t->samples_dropped : 0}};
  doc["rounds"] = {
    {"complete", st.rounds_complete}, {"shrunk", st.rounds_shrunk}, {"failed", st.rounds_failed}};
  doc["local_fallbacks"] = t ? t->local_fallbacks : 0;
  doc["state_downloads"] = t ? t->state_downloads : 0;
  doc["steps"] = t ? t->steps : 0;
  doc["samples_per_second"] = t ? reported_speed(st, ctx) : json(nullptr);
  doc["compute_samples_per_second"] = t ? of_work(t->samples_per_second, t->steps) : json(nullptr);
  doc["learning_rate"] = t ? of_work(t->learning_rate, t->samples_used) : json(nullptr);
  doc["effective_batch"] = t && t->effective_batch > 0 ? json(t->effective_batch) : json(nullptr);
  doc["history"] =
    t && !t->line.branch.is_zero() ? json(short_name(t->line.branch)) : json(nullptr);
  doc["work"] = t ? t->line.work : 0; // samples times contributors since the run's start
  doc["group_size"] = t ? t->group_size : st.helper ? st.helper->group_size : 0;
  doc["provisional"] = t && t->provisional;
  doc["waiting_for"] = t && !t->waiting_for.empty() ? json(t->waiting_for) : json(nullptr);
  doc["notice"] = t && !t->notice.empty() ? json(t->notice) : json(nullptr);
  doc["histories"] = t ? t->histories : 0; // that live peers train
  doc["differing_peers"] = t ? t->differing_peers : 0;
  doc["first_round_seconds"] =
    t && t->first_round_seconds > 0 ? json(t->first_round_seconds) : json(nullptr);
  doc["last_outcome"] = t ? t->last_outcome : "";
  doc["parameters"] =
    t && !t->parameters.is_zero() ? json(to_string(t->parameters)) : json(nullptr);
  doc["bytes"] = {
    {"in", board.bytes_in()}, {"out", board.bytes_out()}, {"shared", board.bytes_shared()}};
  doc["bandwidth"] = bandwidth > 0 ? json(bandwidth) : json(nullptr); // bytes per second
  doc["peers"] = st.run.num_peers;
  doc["auxiliaries"] = st.run.num_auxiliaries;
  doc["reduces_for_clients"] = st.helper ? json(st.helper->clients) : json(nullptr);
  doc["uptime_seconds"] = uptime;
  return doc;
}

json peers_document(const metrics_exporter_state& st, const node_context& ctx) {
  json all = json::array();
  for (const auto& peer : st.run.peers) {
    json addresses = json::array();
    for (const auto& where : peer.who.addresses)
      addresses.push_back(to_string(where));
    all.push_back({{"id", to_string(peer.who.id)},
                   {"addresses", addresses},
                   {"epoch", peer.epoch.value()},
                   {"samples_toward_epoch", peer.samples},
                   {"samples_per_second", number_or_null(peer.samples_per_second)},
                   {"self", peer.who.id == ctx.record.id},
                   {"connected", st.connected.count(peer.who.id) > 0},
                   {"role", peer.claim.auxiliary   ? "auxiliary"
                            : peer.who.client_mode ? "client"
                                                   : "node"}});
  }
  return {{"peers", all}};
}

std::string why_not_joined(const std::optional<dht_status>& dht) {
  if (!dht)
    return "starting";
  if (dht->bootstrapped || dht->initial_peers == 0)
    return {};
  if (dht->bootstrap_failures.size() < dht->initial_peers)
    return "waiting for the first of " + std::to_string(dht->initial_peers)
           + " initial peers to answer";
  std::string reason = "none of the initial peers answers";
  auto separator = ": ";
  for (const auto& why : dht->bootstrap_failures)
    reason += std::exchange(separator, "; ") + why;
  return reason;
}

std::string why_not_ready(const metrics_exporter_state& st) {
  if (!st.training)
    return why_not_joined(st.dht);
  switch (st.training->phase) {
    case trainer_phase::training:
    case trainer_phase::averaging:
    case trainer_phase::finished:
      return st.training->provisional
               ? "provisional: cut off from most of the group, going on without it"
               : std::string{};
    case trainer_phase::starting:
    case trainer_phase::joining:
    case trainer_phase::syncing:
    case trainer_phase::stopped: {
      const auto& why = st.training->waiting_for;
      return std::string{to_string(st.training->phase)}
             + (why.empty() ? "" : ", waiting for " + why);
    }
  }
  return "unknown";
}

/// What a ready peer without a model does for clients; empty if nothing.
std::string beside_training(const metrics_exporter_state& st) {
  if (!st.helper || st.helper->clients == 0)
    return {};
  return "reduces for " + std::to_string(st.helper->clients)
         + (st.helper->clients == 1 ? " client" : " clients");
}

void refresh(self_pointer self, const node_context& ctx, status_board& board) {
  const auto& st = self->state;
  auto now = self->clock().now();
  auto uptime = seconds_of(now - st.began);
  double bandwidth = ctx.line ? ctx.line->bytes_per_second(now).value_or(0) : 0;
  ctx.metrics->set_bandwidth(bandwidth);
  board.show_status(status_document(st, ctx, board, uptime, bandwidth).dump() + "\n");
  board.show_peers(peers_document(st, ctx).dump() + "\n");
  auto reason = why_not_ready(st);
  board.show_readiness(reason.empty(), reason.empty() ? beside_training(st) : reason);
}

} // namespace

metrics_exporter_impl::behavior_type metrics_exporter(self_pointer self, node_context ctx,
                                                      std::shared_ptr<status_board> board,
                                                      bool trains) {
  end_on_exception(self, ctx);
  if (trains)
    self->state.training = not_started();
  self->state.began = self->clock().now();
  refresh(self, ctx, *board);
  self->delayed_send(self, refresh_interval, refresh_documents{});
  return {
    [self, ctx, board](const training_status& msg) {
      auto& training = self->state.training;
      bool new_phase = !training || training->phase != msg.phase;
      training = msg;
      if (new_phase) // the rest can wait for the next refresh
        refresh(self, ctx, *board);
    },
    [self, ctx, board](const helper_status& msg) {
      auto& helper = self->state.helper;
      bool news = !helper || helper->clients != msg.clients;
      helper = msg;
      if (news)
        refresh(self, ctx, *board);
    },
    [self](const round_ended& msg) {
      auto& st = self->state;
      switch (msg.report.outcome) {
        case round_outcome::complete:
          ++st.rounds_complete;
          break;
        case round_outcome::shrunk:
          ++st.rounds_shrunk;
          break;
        case round_outcome::failed:
          ++st.rounds_failed;
          break;
      }
    },
    [ctx](const state_download_ended& msg) {
      if (!msg.ok)
        ctx.log->debug("a state download failed after {:.1f} s: {}", msg.seconds,
                       to_string(msg.why));
    },
    [self](const swarm_progress& msg) { self->state.run = msg; },
    [self, ctx, board](const dht_status& msg) {
      self->state.dht = msg;
      refresh(self, ctx, *board);
    },
    [self](const peer_connected& msg) { self->state.connected.insert(msg.peer.id); },
    [self](const peer_disconnected& msg) { self->state.connected.erase(msg.peer); },
    [self, ctx, board](refresh_documents again) {
      refresh(self, ctx, *board);
      self->delayed_send(self, refresh_interval, again);
    },
  };
}

} // namespace waggle
