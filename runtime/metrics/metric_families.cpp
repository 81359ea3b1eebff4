#include "runtime/metrics/metric_families.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include <prometheus/text_serializer.h>
#include <unistd.h>

#include "runtime/core/version.hpp"

namespace waggle {

namespace {

using labels = prometheus::Labels;
using buckets = prometheus::Histogram::BucketBoundaries;

const buckets rpc_seconds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
const buckets round_seconds{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
const buckets http_answer_seconds{0.005, 0.02, 0.05, 0.2, 1}; // scrape budget: 50 ms
const buckets small_counts{1, 2, 4, 8, 16, 32, 64};

std::string text_of(std::string_view x) {
  return std::string{x};
}
std::string reason(ec code) {
  return std::string{to_string(code)};
}

double boot_time() {
  std::ifstream in{"/proc/stat"};
  std::string word;
  double value = 0;
  while (in >> word)
    if (word == "btime" && (in >> value))
      return value;
  return 0;
}

/// process_*: the standard names, read from /proc at each scrape.
class process_metrics final : public prometheus::Collectable {
public:
  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    std::vector<prometheus::MetricFamily> out;
    auto add = [&](const char* name, const char* help, prometheus::MetricType type, double value) {
      prometheus::ClientMetric metric;
      if (type == prometheus::MetricType::Counter)
        metric.counter.value = value;
      else
        metric.gauge.value = value;
      out.push_back({name, help, type, {metric}});
    };
    std::ifstream stat{"/proc/self/stat"};
    std::string line;
    std::getline(stat, line);
    // The name, field 2, may contain spaces; field[0] is field 3 of proc(5).
    auto name_end = line.rfind(')');
    std::istringstream fields{name_end == std::string::npos ? std::string{}
                                                            : line.substr(name_end + 1)};
    std::array<double, 22> field{};
    std::string word;
    for (auto& f : field)
      if (fields >> word)
        f = std::strtod(word.c_str(), nullptr);
    auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    add("process_cpu_seconds_total", "User and system time used, seconds.",
        prometheus::MetricType::Counter, (field[11] + field[12]) / ticks);
    add("process_start_time_seconds", "When the process started, Unix time.",
        prometheus::MetricType::Gauge, boot_time_ + field[19] / ticks);
    add("process_virtual_memory_bytes", "Virtual memory, bytes.", prometheus::MetricType::Gauge,
        field[20]);
    add("process_resident_memory_bytes", "Resident memory, bytes.", prometheus::MetricType::Gauge,
        field[21] * static_cast<double>(::sysconf(_SC_PAGESIZE)));
    std::error_code error;
    double fds = 0;
    for (std::filesystem::directory_iterator it{"/proc/self/fd", error}, end; !error && it != end;
         it.increment(error))
      ++fds;
    add("process_open_fds", "Open file descriptors.", prometheus::MetricType::Gauge, fds);
    return out;
  }

private:
  double boot_time_ = boot_time();
};

} // namespace

struct metric_families::families {
  families(prometheus::Registry& r, const std::string& run)
    : registry(r), run_labels{{"run", run}} {}

  prometheus::Registry& registry;
  labels run_labels;
  process_metrics process;

  counters& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(run_labels).Register(registry);
  }
  gauges& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(run_labels).Register(registry);
  }
  histograms& histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(run_labels).Register(registry);
  }

  gauges& build_info = gauge("waggle_build_info", "Always 1; the labels identify the build.");
  gauges& config_info =
    gauge("waggle_config_info", "Always 1; peers of one run must have equal labels.");
  gauges& start_timestamp =
    gauge("waggle_start_timestamp_seconds", "When the process started, Unix time.");
  gauges& peer_state =
    gauge("waggle_peer_state", "1 for the state that this peer is in, 0 for the others.");
  gauges& peers = gauge("waggle_peers", "Peers believed to be alive, including this one.");
  counters& peer_joins = counter("waggle_peer_joins_total", "Peers that appeared.");
  counters& peer_departures =
    counter("waggle_peer_departures_total", "Peers that left or were lost, by reason.");
  gauges& clock_skew =
    gauge("waggle_clock_skew_seconds", "Estimated offset between this clock and the swarm's.");
  gauges& dht_entries = gauge("waggle_dht_routing_table_entries", "Peers in the routing table.");
  gauges& dht_records = gauge("waggle_dht_records", "Records stored here.");
  gauges& dht_bytes = gauge("waggle_dht_storage_bytes", "Bytes of the records stored here.");
  counters& dht_requests =
    counter("waggle_dht_requests_total", "DHT requests by operation, direction and outcome.");
  histograms& dht_request_seconds =
    histogram("waggle_dht_request_duration_seconds", "Time to the answer of one DHT request.");
  histograms& dht_lookup_seconds =
    histogram("waggle_dht_lookup_duration_seconds", "Time of a complete lookup.");
  histograms& dht_lookup_hops =
    histogram("waggle_dht_lookup_hops", "Rounds of queries that a lookup took.");
  counters& dht_rejected = counter("waggle_dht_records_rejected_total",
                                   "Records from the network that were refused, by reason.");
  counters& matchmaking =
    counter("waggle_matchmaking_rounds_total", "Searches for a group by outcome.");
  histograms& matchmaking_seconds =
    histogram("waggle_matchmaking_duration_seconds", "Time until the group was complete.");
  histograms& group_size =
    histogram("waggle_matchmaking_group_size", "Members of the groups that formed.");
  counters& joins_refused = counter("waggle_matchmaking_joins_refused_total",
                                    "Requests to join that this peer refused, by reason.");
  counters& rounds = counter("waggle_averaging_rounds_total", "Rounds by kind and outcome.");
  histograms& round_duration = histogram("waggle_averaging_round_duration_seconds",
                                         "Time of an all-reduce, without matchmaking.");
  gauges& contributors = gauge("waggle_averaging_contributors", "Contributors of the last round.");
  counters& parts = counter("waggle_averaging_chunks_total", "Parts by outcome.");
  histograms& recovery = histogram("waggle_averaging_recovery_duration_seconds",
                                   "From the first failure in a round to its end.");
  counters& peer_faults =
    counter("waggle_averaging_peer_faults_total", "Members given up in a round, by reason.");
  gauges& bandwidth = gauge("waggle_bandwidth_bytes_per_second",
                            "Measured bandwidth of this peer's connection; 0: not known.");
  gauges& share_ratio =
    gauge("waggle_averaging_share_ratio", "Share of the vector that this peer reduces.");
  counters& network_bytes =
    counter("waggle_network_bytes_total",
            "Bytes by direction and plane; shared: exchanged with a peer on this host through "
            "shared memory instead of TCP.");
  counters& shared_memory =
    counter("waggle_network_shared_memory_total",
            "Links to peers on this host that use shared memory (reason none), or why not.");
  gauges& connections = gauge("waggle_network_connections", "Open connections to peers.");
  counters& opened =
    counter("waggle_network_connections_opened_total", "Connections made, by direction.");
  counters& closed = counter("waggle_network_connections_closed_total",
                             "Connections that ended, by direction and reason.");
  counters& dial_errors =
    counter("waggle_network_dial_errors_total", "Dials that failed, by reason.");
  counters& refused_input =
    counter("waggle_network_refused_total",
            "Connections, frames and messages that were refused, by reason.");
  histograms& rtt =
    histogram("waggle_network_rtt_seconds", "Round-trip time of pings to connected peers.");
  counters& downloads = counter("waggle_state_downloads_total", "State downloads by outcome.");
  histograms& download_seconds =
    histogram("waggle_state_download_duration_seconds", "Time of a state download.");
  gauges& download_progress =
    gauge("waggle_state_download_progress_ratio", "Progress of the current download, 0 to 1.");
  counters& state_bytes =
    counter("waggle_state_bytes_total", "Bytes of state transferred, by direction.");
  counters& hash_checks = counter("waggle_state_hash_checks_total",
                                  "Comparisons of the parameters' hash with the other peers'.");
  counters& checkpoints = counter("waggle_checkpoint_saves_total", "Checkpoints by outcome.");
  histograms& checkpoint_seconds =
    histogram("waggle_checkpoint_duration_seconds", "Time to write a checkpoint.");
  gauges& checkpoint_time = gauge("waggle_checkpoint_last_success_timestamp_seconds",
                                  "When the last checkpoint was written, Unix time.");
  gauges& epoch = gauge("waggle_training_epoch", "This peer's epoch.");
  gauges& global_epoch = gauge("waggle_training_global_epoch", "The swarm's epoch.");
  counters& samples =
    counter("waggle_training_samples_total", "Samples that entered an update, or were dropped.");
  counters& discarded = counter("waggle_training_samples_discarded_total",
                                "Samples that did not enter an update, by reason.");
  gauges& effective_batch = gauge("waggle_training_effective_batch_samples",
                                  "Samples of all contributors in the last update.");
  gauges& histories = gauge("waggle_training_histories",
                            "Histories that live peers train; 1 unless the run has forked.");
  gauges& differing =
    gauge("waggle_training_differing_peers",
          "Peers with our epoch and history but different parameters; 0 in a healthy run.");
  gauges& provisional =
    gauge("waggle_training_provisional", "1 while this peer continues without most of its group.");
  gauges& first_round = gauge("waggle_training_first_round_seconds",
                              "From this peer's start to the end of its first round.");
  gauges& updates_waiting =
    gauge("waggle_training_updates_waiting", "Averaged updates not applied to the model yet.");
  histograms& step_seconds =
    histogram("waggle_training_step_duration_seconds", "Time of a step's phases.");
  gauges& batch_progress = gauge("waggle_training_target_batch_progress_ratio",
                                 "The swarm's progress toward the target batch size.");
  gauges& loss = gauge("waggle_training_loss", "Smoothed loss of this peer.");
  gauges& learning_rate =
    gauge("waggle_training_learning_rate", "Learning rate of the current epoch.");
  gauges& gradient_norm =
    gauge("waggle_training_gradient_norm", "Norm of the last applied gradient.");
  counters& nonfinite =
    counter("waggle_training_nonfinite_total", "NaN or infinite values seen, by place.");
  counters& activity =
    counter("waggle_training_time_seconds_total", "How the trainer spends its time.");
  counters& fallbacks =
    counter("waggle_training_local_fallbacks_total",
            "Epochs that ended with this peer's own gradient because the round failed.");
  counters& restarts = counter("waggle_actor_restarts_total", "Actors restarted by the node.");
  counters& http_requests =
    counter("waggle_http_requests_total", "HTTP requests by route and status code.");
  histograms& http_seconds =
    histogram("waggle_http_request_duration_seconds", "Time to answer an HTTP request.");
};

namespace {

constexpr std::array<std::string_view, 5> http_routes{"/metrics", "/healthz", "/readyz",
                                                      "/api/v1/status", "/api/v1/peers"};
constexpr std::array peer_states{"starting",  "joining", "syncing", "training",
                                 "averaging", "paused",  "serving", "leaving"};

} // namespace

metric_families::metric_families(std::shared_ptr<prometheus::Registry> registry,
                                 const std::string& run_id)
  : registry_(std::move(registry)), families_(std::make_shared<families>(*registry_, run_id)) {
  auto& f = *families_;
  f.build_info.Add({{"version", version}}).Set(1);
  f.start_timestamp.Add({}).SetToCurrentTime();
  set_peer_state("starting");
  set_peers(1, 0, 0);
  set_clock_skew(0);
  set_dht(0, 0, 0);
  set_connections(0, 0);
  set_epochs(0, 0);
  set_batch_progress(0);
  set_state_download_progress(0);
  set_share_ratio(0);
  set_bandwidth(0);
  f.peer_joins.Add({});
  f.fallbacks.Add({});
  f.histories.Add({});
  f.provisional.Add({});
  for (auto why : {ec::shutting_down, ec::timeout, ec::peer_lost})
    f.peer_departures.Add({{"reason", reason(why)}});
  for (const auto* op : {"ping", "find", "store"})
    for (const auto* direction : {"in", "out"})
      f.dht_requests.Add({{"op", op}, {"direction", direction}, {"outcome", "none"}});
  for (auto why :
       {ec::bad_signature, ec::bad_expiry, ec::oversize, ec::stale_record, ec::not_owner})
    f.dht_rejected.Add({{"reason", reason(why)}});
  for (auto why : {ec::none, ec::too_few, ec::timeout, ec::nobody_declared})
    f.matchmaking.Add({{"outcome", why == ec::none ? "formed" : reason(why)}});
  for (const auto* kind : {"gradients", "vector"})
    for (const auto* outcome : {"complete", "shrunk", "failed"})
      f.rounds.Add({{"kind", kind}, {"outcome", outcome}});
  for (const auto* outcome : {"ok", "retried", "reowned", "lost"})
    f.parts.Add({{"outcome", outcome}});
  for (auto why : {ec::timeout, ec::peer_lost, ec::stalled, ec::protocol_violation, ec::non_finite,
                   ec::bad_weight})
    f.peer_faults.Add({{"reason", reason(why)}});
  for (auto why :
       {ec::malformed, ec::oversize, ec::wrong_run, ec::wrong_version, ec::bad_signature,
        ec::protocol_violation, ec::non_finite, ec::wrong_shape, ec::bad_weight, ec::timeout})
    f.refused_input.Add({{"reason", reason(why)}});
  f.shared_memory.Add({{"reason", reason(ec::none)}});
  for (auto why : {ec::unreachable, ec::timeout, ec::wrong_run})
    f.dial_errors.Add({{"reason", reason(why)}});
  for (const auto* direction : {"in", "out"}) {
    f.opened.Add({{"direction", direction}});
    f.closed.Add({{"direction", direction}, {"reason", reason(ec::peer_lost)}});
    f.state_bytes.Add({{"direction", direction}});
    for (const auto* plane : {"control", "data", "shared"})
      f.network_bytes.Add({{"direction", direction}, {"plane", plane}});
  }
  for (const auto* outcome : {"complete", "failed"})
    f.downloads.Add({{"outcome", outcome}});
  for (const auto* outcome : {"equal", "minority", "majority_unknown"})
    f.hash_checks.Add({{"outcome", outcome}});
  for (const auto* outcome : {"ok", "failed"})
    f.checkpoints.Add({{"outcome", outcome}});
  for (const auto* outcome : {"used", "dropped"})
    f.samples.Add({{"outcome", outcome}});
  for (const auto* why : {"left_out", "history_lost", "not_finite", "behind", "stopped"})
    f.discarded.Add({{"reason", why}});
  for (const auto* where : {"loss", "gradient", "remote"})
    f.nonfinite.Add({{"where", where}});
  for (const auto* what : {"compute", "communicate", "wait", "sync"})
    f.activity.Add({{"activity", what}});
  for (const auto* op : {"ping", "find", "store"})
    f.dht_request_seconds.Add({{"op", op}}, rpc_seconds);
  for (const auto* op : {"get", "put"}) {
    f.dht_lookup_seconds.Add({{"op", op}}, rpc_seconds);
    f.dht_lookup_hops.Add({{"op", op}}, small_counts);
  }
  f.matchmaking_seconds.Add({}, round_seconds);
  f.group_size.Add({}, small_counts);
  for (const auto* kind : {"gradients", "vector"}) {
    f.round_duration.Add({{"kind", kind}}, round_seconds);
    f.contributors.Add({{"kind", kind}});
  }
  f.recovery.Add({}, round_seconds);
  f.rtt.Add({}, rpc_seconds);
  f.download_seconds.Add({}, round_seconds);
  f.checkpoint_seconds.Add({}, round_seconds);
  for (auto route : http_routes) {
    f.http_requests.Add({{"route", text_of(route)}, {"code", "200"}});
    f.http_seconds.Add({{"route", text_of(route)}}, http_answer_seconds);
  }
  for (const auto* phase : {"forward_backward", "optimizer", "state_copy"})
    f.step_seconds.Add({{"phase", phase}}, rpc_seconds);
}

std::string metric_families::text() const {
  auto all = registry_->Collect();
  auto process = families_->process.Collect();
  all.insert(all.end(), process.begin(), process.end());
  return prometheus::TextSerializer{}.Serialize(all);
}

// -- increments ----------------------------------------------------------------------------------

void metric_families::count_dht_request(std::string_view op, std::string_view direction,
                                        ec outcome) {
  families_->dht_requests
    .Add({{"op", text_of(op)}, {"direction", text_of(direction)}, {"outcome", reason(outcome)}})
    .Increment();
}
void metric_families::observe_dht_request(std::string_view op, double seconds) {
  families_->dht_request_seconds.Add({{"op", text_of(op)}}, rpc_seconds).Observe(seconds);
}
void metric_families::observe_dht_lookup(std::string_view op, double seconds, double hops) {
  families_->dht_lookup_seconds.Add({{"op", text_of(op)}}, rpc_seconds).Observe(seconds);
  families_->dht_lookup_hops.Add({{"op", text_of(op)}}, small_counts).Observe(hops);
}
void metric_families::count_dht_rejected(ec why) {
  families_->dht_rejected.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::count_matchmaking(ec outcome, double seconds, double group_size) {
  families_->matchmaking.Add({{"outcome", outcome == ec::none ? "formed" : reason(outcome)}})
    .Increment();
  families_->matchmaking_seconds.Add({}, round_seconds).Observe(seconds);
  if (outcome == ec::none)
    families_->group_size.Add({}, small_counts).Observe(group_size);
}
void metric_families::count_join_refused(ec why) {
  families_->joins_refused.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::count_round(std::string_view kind, std::string_view outcome, double seconds,
                                  double contributors, double recovery_seconds) {
  families_->rounds.Add({{"kind", text_of(kind)}, {"outcome", text_of(outcome)}}).Increment();
  families_->round_duration.Add({{"kind", text_of(kind)}}, round_seconds).Observe(seconds);
  families_->contributors.Add({{"kind", text_of(kind)}}).Set(contributors);
  if (recovery_seconds > 0)
    families_->recovery.Add({}, round_seconds).Observe(recovery_seconds);
}
void metric_families::count_part(std::string_view outcome, double n) {
  families_->parts.Add({{"outcome", text_of(outcome)}}).Increment(n);
}
void metric_families::count_peer_fault(ec why) {
  families_->peer_faults.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::count_network_bytes(std::string_view direction, std::string_view plane,
                                          double bytes) {
  families_->network_bytes.Add({{"direction", text_of(direction)}, {"plane", text_of(plane)}})
    .Increment(bytes);
}
void metric_families::count_shared_memory(ec why) {
  families_->shared_memory.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::connection_opened(std::string_view direction) {
  families_->opened.Add({{"direction", text_of(direction)}}).Increment();
}
void metric_families::connection_closed(std::string_view direction, ec why) {
  families_->closed.Add({{"direction", text_of(direction)}, {"reason", reason(why)}}).Increment();
}
void metric_families::count_dial_error(ec why) {
  families_->dial_errors.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::count_refused_input(ec why) {
  families_->refused_input.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::observe_rtt(double seconds) {
  families_->rtt.Add({}, rpc_seconds).Observe(seconds);
}
void metric_families::count_peer_join() {
  families_->peer_joins.Add({}).Increment();
}
void metric_families::count_peer_departure(ec why) {
  families_->peer_departures.Add({{"reason", reason(why)}}).Increment();
}
void metric_families::count_state_download(std::string_view outcome, double seconds) {
  families_->downloads.Add({{"outcome", text_of(outcome)}}).Increment();
  families_->download_seconds.Add({}, round_seconds).Observe(seconds);
}
void metric_families::count_state_bytes(std::string_view direction, double bytes) {
  families_->state_bytes.Add({{"direction", text_of(direction)}}).Increment(bytes);
}
void metric_families::count_state_hash_check(std::string_view outcome) {
  families_->hash_checks.Add({{"outcome", text_of(outcome)}}).Increment();
}
void metric_families::count_checkpoint(std::string_view outcome, double seconds, double now_unix) {
  families_->checkpoints.Add({{"outcome", text_of(outcome)}}).Increment();
  families_->checkpoint_seconds.Add({}, round_seconds).Observe(seconds);
  if (outcome == "ok")
    families_->checkpoint_time.Add({}).Set(now_unix);
}
void metric_families::count_samples(std::string_view outcome, double n) {
  families_->samples.Add({{"outcome", text_of(outcome)}}).Increment(n);
}
void metric_families::count_discarded(std::string_view reason, double n) {
  families_->discarded.Add({{"reason", text_of(reason)}}).Increment(n);
}
void metric_families::observe_step(std::string_view phase, double seconds) {
  families_->step_seconds.Add({{"phase", text_of(phase)}}, rpc_seconds).Observe(seconds);
}
void metric_families::count_nonfinite(std::string_view where) {
  families_->nonfinite.Add({{"where", text_of(where)}}).Increment();
}
void metric_families::count_training_time(std::string_view activity, double seconds) {
  families_->activity.Add({{"activity", text_of(activity)}}).Increment(std::max(0.0, seconds));
}
void metric_families::count_local_fallback() {
  families_->fallbacks.Add({}).Increment();
}
void metric_families::count_http_request(std::string_view target, int code, double seconds) {
  // The target comes from an untrusted client; labels come only from the known routes.
  target = target.substr(0, target.find('?'));
  auto known = std::find(http_routes.begin(), http_routes.end(), target);
  std::string_view route = known == http_routes.end() ? "other" : *known;
  families_->http_requests.Add({{"route", text_of(route)}, {"code", std::to_string(code)}})
    .Increment();
  families_->http_seconds.Add({{"route", text_of(route)}}, http_answer_seconds).Observe(seconds);
}
void metric_families::count_actor_restart(std::string_view actor) {
  families_->restarts.Add({{"actor", text_of(actor)}}).Increment();
}

// -- gauges --------------------------------------------------------------------------------------

void metric_families::set_peer_state(std::string_view state) {
  for (const auto* name : peer_states)
    families_->peer_state.Add({{"state", name}}).Set(state == name ? 1 : 0);
}
void metric_families::set_config_info(std::string_view config_hash, std::string_view schema_hash,
                                      std::string_view strategy) {
  families_->config_info
    .Add({{"config_hash", text_of(config_hash)},
          {"schema_hash", text_of(schema_hash)},
          {"strategy", text_of(strategy)}})
    .Set(1);
}
void metric_families::set_peers(double nodes, double clients, double auxiliaries) {
  families_->peers.Add({{"role", "node"}}).Set(nodes);
  families_->peers.Add({{"role", "client"}}).Set(clients);
  families_->peers.Add({{"role", "aux"}}).Set(auxiliaries);
}
void metric_families::set_clock_skew(double seconds) {
  families_->clock_skew.Add({}).Set(seconds);
}
void metric_families::set_dht(double routing_entries, double records, double record_bytes) {
  families_->dht_entries.Add({}).Set(routing_entries);
  families_->dht_records.Add({}).Set(records);
  families_->dht_bytes.Add({}).Set(record_bytes);
}
void metric_families::set_connections(double in, double out) {
  families_->connections.Add({{"direction", "in"}}).Set(in);
  families_->connections.Add({{"direction", "out"}}).Set(out);
}
void metric_families::set_epochs(double own, double global) {
  families_->epoch.Add({}).Set(own);
  families_->global_epoch.Add({}).Set(global);
}
void metric_families::set_batch_progress(double ratio) {
  families_->batch_progress.Add({}).Set(ratio);
}
void metric_families::set_histories(double n) {
  families_->histories.Add({}).Set(n);
}

void metric_families::set_differing_peers(double n) {
  families_->differing.Add({}).Set(n);
}

void metric_families::set_provisional(bool provisional) {
  families_->provisional.Add({}).Set(provisional ? 1 : 0);
}

void metric_families::set_first_round(double seconds) {
  families_->first_round.Add({}).Set(seconds);
}

void metric_families::set_updates_waiting(double n) {
  families_->updates_waiting.Add({}).Set(n);
}

void metric_families::set_effective_batch(double samples) {
  families_->effective_batch.Add({}).Set(samples);
}
void metric_families::set_training(double loss, double learning_rate, double gradient_norm) {
  families_->loss.Add({}).Set(loss);
  families_->learning_rate.Add({}).Set(learning_rate);
  families_->gradient_norm.Add({}).Set(gradient_norm);
}
void metric_families::set_bandwidth(double bytes_per_second) {
  families_->bandwidth.Add({}).Set(bytes_per_second);
}
void metric_families::set_share_ratio(double ratio) {
  families_->share_ratio.Add({}).Set(ratio);
}
void metric_families::set_state_download_progress(double ratio) {
  families_->download_progress.Add({}).Set(ratio);
}

} // namespace waggle
