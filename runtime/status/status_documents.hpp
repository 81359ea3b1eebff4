#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/machine_use.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/status/actor_census.hpp"
#include "runtime/status/event_maker.hpp"
#include "runtime/status/peer_status.hpp"
#include "runtime/status/symptoms.hpp"
#include "runtime/watch/slow_peers.hpp"

namespace waggle {

struct link_rates {
  double rtt_ms = 0; // 0: not known
  double bytes_in_per_s = 0;
  double bytes_out_per_s = 0;
  bool shares_memory = false;
  bool encrypted = false;
  bool exposed = false; // it leads to another machine, and is not encrypted
};

/// The latest reports of a peer's actors, from which the documents are made.
struct peer_picture {
  std::string_view role = "node";          // of this peer: role_name
  std::optional<training_status> training; // nothing: a peer without a model
  std::optional<helper_status> helper;     // nothing: it does not reduce for clients
  std::optional<dht_status> dht;           // nothing: the DHT has not reported yet
  swarm_progress run;
  std::set<peer_id> connected;
  std::map<peer_id, link_rates> links; // of connected peers
  std::vector<departure> left;         // also those that are back; the latest first
  std::map<peer_id, presence> present; // connected peers, also those that report nothing
  slow_report slow;
  std::uint64_t rounds_complete = 0;
  std::uint64_t rounds_shrunk = 0;
  std::uint64_t rounds_failed = 0;
};

/// The same word for a peer on each page: trainer, client (it trains, and only dials others) or
/// node (it does not train).
constexpr std::string_view role_name(bool trains, bool client) {
  return !trains ? "node" : client ? "client" : "trainer";
}

/// One of several processes that are this peer together.
struct rank_pace {
  std::string device;
  double seconds = 0;      // of its own work in a pass, before it waits for the others
  double pass_seconds = 0; // of the pass of all
};

/// The values in the documents that no actor reports.
struct peer_facts {
  peer_id self{};
  std::string run_id{};
  std::string run_tag{}; // see run_secret.hpp
  double uptime = 0;     // seconds
  double bandwidth = 0;  // bytes a second; 0: not known
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_shared = 0;
  machine_use machine{};
  double clock_skew = 0; // seconds that the others' clocks are ahead of this machine's
  std::map<std::string, actor_count> actors{}; // by name
  std::vector<rank_pace> ranks{};              // empty: this process alone
};

struct peer_view; // facts.hpp

/// /api/v1/status: what facts.hpp lists; null where a value is not known or does not exist yet.
/// @param since see show_symptoms.
std::string status_document(const peer_view& of, symptom_times* since = nullptr,
                            swarm_time now = {});

/// /api/v1/peers: {"peers":[{"id","addresses","epoch","samples_toward_epoch","samples_per_second",
/// "compute_samples_per_second","self","connected","role","rtt_ms","bytes_in_per_s",
/// "bytes_out_per_s","link","state","loss","pass_seconds","last_seen","slow":{"cause","text"},
/// "time":{},"machine":{},"settings":{},"left":{"t","reason","code","lost","times"}}],
/// "left":[{"peer","t","reason",…,"addresses"}]}
/// From "rtt_ms" on, what is not known is absent. "role": role_name; a node has no epoch. "state",
/// "loss", "pass_seconds", the rate of used samples, "time" and "machine" (peer_shares) and
/// "settings" are what the peer reports of itself. "left": who
/// left and is not back, the latest first, and how a peer that is back left last; "lost": without a
/// goodbye.
std::string peers_document(const peer_picture& picture, const peer_id& self, swarm_time now = {});

/// /sd, for Prometheus (http_sd_config): this peer, those of its run that it knows, and those that
/// were lost in the last ten minutes, so that an alert can fire for them:
/// [{"targets":["10.0.0.1:7700"],"labels":{"run","peer","role"}}]. A peer is at the first address
/// that it announces; clients have none and are left out. "run": as in the metrics.
std::string targets_document(const peer_picture& picture, const peer_record& self,
                             const std::string& run_tag);

/// /readyz: why this peer is not ready; empty: it is. A trainer is ready while it is in step; a
/// peer without a model once it is part of the run: at once if it has no initial peers, else when
/// another peer has answered.
std::string why_not_ready(const peer_picture& picture);

/// What the peer's actors found that the operator should act on. Those of the links to others are a
/// part of /readyz, too, whether ready or not.
std::vector<notice> notices_of(const peer_picture& picture);
std::string links_notice(const peer_picture& picture);

/// What a ready peer without a model does for others; empty: nothing.
std::string duties(const peer_picture& picture);

} // namespace waggle
