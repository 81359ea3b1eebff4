#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/address_book.hpp"
#include "actors/averager.hpp"
#include "actors/dht_router.hpp"
#include "actors/group_helper.hpp"
#include "actors/matchmaker.hpp"
#include "actors/metrics_exporter.hpp"
#include "actors/progress_tracker.hpp"
#include "actors/state_donor.hpp"
#include "actors/switchboard.hpp"
#include "actors/trainer.hpp"
#include "runtime/net/http.hpp"
#include "runtime/net/net_events.hpp"

namespace waggle {

/// A whole peer.
struct node_config {
  std::string run_id = "waggle";
  endpoint listen{"0.0.0.0", 7700};
  std::optional<endpoint> announce; // how others reach us, if not at the address we bind
  std::vector<endpoint> initial_peers;
  /// Accepts no connections, only dials; `listen` is where it answers HTTP. Best on loopback.
  bool client_mode = false;
  std::uint64_t seed = 0;
  /// What all peers of the run must have alike; who has another one is refused. Null: links with
  /// everybody, as a peer that neither trains nor averages may.
  std::shared_ptr<const run_agreement> agreement;

  switchboard_config switchboard;
  dht_config dht;
  address_book_config addresses; // needs node_dependencies::files
  progress_config progress;
  /// Peers that average; nothing: a helper that only keeps the DHT and watches.
  struct averaging_parts {
    matchmaking_config matchmaking;
    averaging_config averaging;
  };
  std::optional<averaging_parts> averaging;
  /// Averagers of other vectors beside it, each under a prefix of its own. Needs `averaging`.
  std::vector<averaging_parts> further_averaging;
  /// Peers that train; needs `averaging`, too.
  struct training_parts {
    training_config training;
    learner_factory make_learner;
    donor_config donor;
  };
  std::optional<training_parts> training;
  /// A peer without a model that reduces for clients and passes on their state. Not beside
  /// `averaging` and `training`, nor in client mode. `averaging.mode` and `.auxiliary`: auxiliary.
  struct helping_parts {
    averaging_parts averaging;
    help_config help;
    donor_config donor;
  };
  std::optional<helping_parts> helping;

  /// After a command to stop: for the trainer's checkpoint, then for the goodbyes.
  milliseconds stop_training_timeout{3'000};
  milliseconds goodbye_time{300};
};

/// What a transport is made for.
struct transport_request {
  peer_record record;
  std::shared_ptr<const run_agreement> agreement;
  net::http_handler http;
  net::net_events events;
};

/// The world as one peer sees it (product.md §2.5).
struct node_dependencies {
  std::shared_ptr<const identity> self;
  std::shared_ptr<const wall_clock> wall;
  std::shared_ptr<const signature_verifier> verifier;
  std::shared_ptr<prometheus::Registry> registry;
  std::shared_ptr<spdlog::logger> log;
  std::function<std::shared_ptr<net::transport>(transport_request)> make_transport;
  /// Where vectors lie that are averaged; null: on the heap.
  std::shared_ptr<std::pmr::memory_resource> memory;
  /// Empty: rounds meet the world as it is.
  round_port_decorator port_decorator;
  /// Where known peers are kept; null: nowhere.
  std::shared_ptr<disk> files;
  /// Where copies of states are kept while somebody reads them; empty: in memory, as simulations
  /// do.
  byte_store_factory make_store;
  /// What computes, hashes or writes files blocks, so it gets threads of its own. Not in
  /// simulations.
  bool detach_workers = true;
};

/// Who averages one vector.
struct averaging_actors {
  matchmaker_actor matchmaker;
  averager_actor averager;
};

/// Handles of a running peer. Empty where the configuration did not ask for that part.
struct node_parts {
  wired_switchboard_actor switchboard;
  wired_dht_router_actor dht;
  link_listener_actor addresses;
  wired_progress_tracker_actor tracker;
  wired_metrics_exporter_actor exporter;
  matchmaker_actor matchmaker;
  averager_actor averager;
  std::vector<averaging_actors> further; // in the order of node_config::further_averaging
  wired_group_averager_actor group;      // of the trainer's gradients, or of the helper's clients
  state_keeper_actor keeper;
  trainer_actor trainer;
  group_helper_actor helper;
  state_donor_actor donor;
};

struct started_node {
  node_actor node;
  node_parts parts;
  endpoint bound; // in client mode: of HTTP alone
  node_context ctx;
  std::shared_ptr<status_board> board;
};

/// Binds the address, then brings a peer to life in `system`: transport, switchboard, DHT,
/// progress, metrics, and what the configuration asks for. Nothing runs if it fails
/// (ec::bad_config).
result<started_node> start_node(caf::actor_system& system, const node_config& config,
                                const node_dependencies& dependencies);

/// All actors that are alive, in the order in which they end.
std::vector<caf::strong_actor_ptr> everybody(const node_parts& parts);

/// The actor that has the state that the donor gives away.
snapshot_source_actor snapshot_source(const node_parts& parts);

} // namespace waggle
