#pragma once

// Every metric that a peer exports: name, help text, labels and their closed sets of values. No
// other code contains a metric's name, except dashboards/, which a test compares with this file.

#include <memory>
#include <string>
#include <string_view>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "runtime/core/error.hpp"

namespace waggle {

/// The metric families of one peer in one registry, with the constant label `run`. Thread-safe.
/// Label values come from closed sets, never from the network.
class metric_families {
public:
  using counters = prometheus::Family<prometheus::Counter>;
  using gauges = prometheus::Family<prometheus::Gauge>;
  using histograms = prometheus::Family<prometheus::Histogram>;

  /// Registers all families and creates the children that must export zero from the start.
  metric_families(std::shared_ptr<prometheus::Registry> registry, const std::string& run_id);

  /// Text exposition format 0.0.4 of the whole registry.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  // -- increments (these signatures document the label sets) -------------------------------------

  void count_dht_request(std::string_view op /*ping find store*/,
                         std::string_view direction /*in out*/, ec outcome);
  void observe_dht_request(std::string_view op, double seconds);
  void observe_dht_lookup(std::string_view op /*get put*/, double seconds, double hops);
  void count_dht_rejected(ec reason);
  void count_matchmaking(ec outcome /*none: formed*/, double seconds, double group_size);
  void count_join_refused(ec reason);
  /// Also sets the contributors gauge and observes durations.
  void count_round(std::string_view kind /*gradients params state vector*/,
                   std::string_view outcome /*complete shrunk failed*/, double seconds,
                   double contributors, double recovery_seconds);
  void count_part(std::string_view outcome /*ok retried reowned lost*/, double n = 1);
  void count_peer_fault(ec reason);
  void count_network_bytes(std::string_view direction /*in out*/,
                           std::string_view plane /*control data shared*/, double bytes);
  void count_shared_memory(ec why);
  void connection_opened(std::string_view direction /*in out*/);
  void connection_closed(std::string_view direction /*in out*/, ec reason);
  void count_dial_error(ec reason);
  /// Counts a refused inbound connection, handshake, frame or message.
  void count_refused_input(ec reason);
  void observe_rtt(double seconds);
  void count_peer_join();
  void count_peer_departure(ec reason);
  void count_state_download(std::string_view outcome /*complete resumed failed hash_mismatch*/,
                            double seconds);
  void count_state_bytes(std::string_view direction /*in out*/, double bytes);
  void count_state_hash_check(std::string_view outcome /*equal minority majority_unknown*/);
  void count_checkpoint(std::string_view outcome /*ok failed*/, double seconds, double now_unix);
  void count_samples(std::string_view outcome /*used dropped*/, double n);
  /// Samples that did not enter an update, by reason: left_out history_lost not_finite behind
  /// stopped.
  void count_discarded(std::string_view reason, double n);
  void observe_step(std::string_view phase /*forward_backward optimizer state_copy*/,
                    double seconds);
  void count_nonfinite(std::string_view where /*loss gradient remote*/);
  void count_training_time(std::string_view activity /*compute communicate wait sync*/,
                           double seconds);
  void count_local_fallback();
  /// `target` may be any string; an unknown route counts as "other".
  void count_http_request(std::string_view target, int code, double seconds);
  void count_actor_restart(std::string_view actor);

  // -- gauges ------------------------------------------------------------------------------------

  /// Exactly one state is 1: starting joining syncing training averaging paused
  /// serving (a peer without a model) leaving.
  void set_peer_state(std::string_view state);
  void set_config_info(std::string_view config_hash, std::string_view schema_hash,
                       std::string_view strategy);
  void set_peers(double nodes, double clients, double auxiliaries);
  void set_clock_skew(double seconds);
  void set_dht(double routing_entries, double records, double record_bytes);
  void set_connections(double in, double out);
  void set_epochs(double own, double global);
  void set_batch_progress(double ratio);
  /// Number of samples of all contributors in the last update.
  void set_effective_batch(double samples);
  /// Number of distinct histories in the live reports; 1 unless the run has forked.
  void set_histories(double n);
  /// Peers with our epoch and history but different parameters: 0 unless something is broken.
  void set_differing_peers(double n);
  /// Whether this peer continued without most of its group.
  void set_provisional(bool provisional);
  /// Time from the start of this peer to the end of its first round.
  void set_first_round(double seconds);
  /// Averaged updates that the computing thread has not applied yet.
  void set_updates_waiting(double n);
  void set_training(double loss, double learning_rate, double gradient_norm);
  void set_share_ratio(double ratio);
  /// Measured bandwidth of this peer's connection; 0: not known.
  void set_bandwidth(double bytes_per_second);
  void set_state_download_progress(double ratio);

private:
  struct families;

  std::shared_ptr<prometheus::Registry> registry_;
  std::shared_ptr<families> families_;
};

} // namespace waggle
