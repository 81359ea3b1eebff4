#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/averaging/matchmaker.hpp"
#include "actors/averaging/vector_averager.hpp"
#include "actors/discovery/dht_router.hpp"
#include "actors/discovery/progress_tracker.hpp"
#include "actors/links/address_book.hpp"
#include "actors/links/switchboard.hpp"
#include "actors/state/state_donor.hpp"
#include "actors/training/training_config.hpp"
#include "actors/watch/event_writer.hpp"
#include "actors/watch/metrics_exporter.hpp"
#include "runtime/core/machine_use.hpp"
#include "runtime/net/clock_offset.hpp"
#include "runtime/net/http.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/port_mapping.hpp"

namespace waggle {

/// The configuration of a whole peer.
struct node_config {
  std::string run_id = "waggle";
  std::string label{};                        // for people, of a run with a key; empty: run_id
  std::vector<endpoint> listen{{"::", 7700}}; // at least one
  std::vector<endpoint> announce{}; // the addresses for others, if they are not the bound ones
  std::vector<endpoint> initial_peers{};
  /// Accepts no connections, only dials; `listen` is then for HTTP only, and best on loopback.
  bool client_mode = false;
  page_audience pages = page_audience::all; // who sees the page at /
  std::uint64_t seed = 0;
  /// The values that must be equal on all peers of the run; peers with another agreement are
  /// refused. Null: accepts all peers, as a peer that neither trains nor averages may.
  std::shared_ptr<const run_agreement> agreement{};

  switchboard_config switchboard{};
  dht_config dht{};
  address_book_config addresses{}; // needs node_dependencies::files
  event_log_config event_log{};    // needs node_dependencies::files
  progress_config progress{};
  std::shared_ptr<run_members> members{}; // null: whoever knows the run's key or name belongs to it
  /// The members of the run trust each other: their rounds check nothing. Needs `members`.
  bool trust_members = false;
  /// For peers that average. None: a peer that only serves the DHT and metrics.
  struct averaging_parts {
    matchmaking_config matchmaking;
    averaging_config averaging;
  };
  std::optional<averaging_parts> averaging{};
  /// Averagers of further vectors, each with its own prefix. Needs `averaging` or
  /// `takes_averagers`. These can be ended.
  std::vector<averaging_parts> further_averaging{};
  /// There may be add_averager commands.
  bool takes_averagers = false;
  /// For peers that train. Needs `averaging`, too.
  struct training_parts {
    training_config training;
    learner_factory make_learner;
    donor_config donor;
    std::optional<evaluation_plan> evaluation;
  };
  std::optional<training_parts> training{};
  /// For a peer without a model that reduces for clients and passes on their state. Excludes
  /// `averaging`, `training` and client mode. `averaging.mode` and `.auxiliary`: auxiliary.
  struct helping_parts {
    averaging_parts averaging;
    help_config help;
    donor_config donor;
  };
  std::optional<helping_parts> helping{};

  /// Time after shut_down for the trainer's checkpoint, then for the goodbyes.
  milliseconds stop_training_timeout{3'000};
  milliseconds goodbye_time{300};
};

/// The arguments for making a transport.
struct transport_request {
  peer_record record;
  std::shared_ptr<const run_agreement> agreement;
  net::http_handler http;
  net::net_events events;
  std::shared_ptr<const wall_clock> clock;
  net::clock_limits clocks;
};

/// Everything outside the actors that one peer depends on: time, network, disk, identity, log.
struct node_dependencies {
  std::shared_ptr<const identity> self;
  std::shared_ptr<const wall_clock> wall; // the machine's
  std::function<steady_time()> steady;    // empty: the clock of the actors
  std::shared_ptr<const signature_verifier> verifier;
  /// For the metrics, whose series have the labels `run` (run_tag) and `peer`. Peers may share it;
  /// each removes its series when it ends.
  std::shared_ptr<prometheus::Registry> registry;
  std::shared_ptr<spdlog::logger> log;
  std::function<std::shared_ptr<net::transport>(transport_request)> make_transport;
  /// Memory for vectors that are averaged; null: the heap.
  std::shared_ptr<std::pmr::memory_resource> memory;
  /// Wraps the port of every round; empty: none is wrapped.
  round_port_decorator port_decorator;
  /// The disk for known peers and events; null: they are not stored.
  std::shared_ptr<disk> files;
  /// Storage for copies of states while they are read; empty: memory, as in simulations.
  byte_store_factory make_store;
  /// How full and busy the machine is; null, as in simulations: not shown.
  std::shared_ptr<machine_watch> machine;
  /// The router before this machine; null: it is not asked for ports.
  std::shared_ptr<net::port_router> router;
  /// Gives the actors that block (computing, hashing, writing files) threads of their own. Off in
  /// simulations.
  bool detach_workers = true;
};

/// The actors that average one vector.
struct averaging_actors {
  std::string prefix;
  wired_matchmaker_actor matchmaker;
  wired_group_averager_actor group;
  averager_actor averager;
};

/// Handles of a running peer. Empty for parts that are not in the configuration.
struct node_parts {
  wired_switchboard_actor switchboard;
  wired_dht_router_actor dht;
  link_listener_actor addresses;
  wired_progress_tracker_actor tracker;
  wired_metrics_exporter_actor exporter;
  report_relay_actor reports; // to the exporter, also after it was started again
  matchmaker_actor matchmaker;
  averager_actor averager;
  std::vector<averaging_actors> further; // first those of node_config::further_averaging, in order
  wired_group_averager_actor group;      // of the trainer, the helper or the averager
  kept_group_actor rounds;               // of the group, where that is a moshpit_averager
  state_keeper_actor keeper;
  trainer_actor trainer;
  group_helper_actor helper;
  state_donor_actor donor;
  event_writer_actor writer;
};

/// Command: start an averager, with a prefix of its own. Fails with ec::bad_config or
/// shutting_down. REQUIRES: check_averaging_parts.
struct add_averager {
  node_config::averaging_parts how;
};
/// Command: end a further one. Its running step fails. Fails with ec::bad_config.
struct end_averager {
  std::string prefix;
};
using wired_node_actor = node_actor::extend<caf::replies_to<add_averager>::with<averaging_actors>,
                                            caf::replies_to<end_averager>::with<caf::unit_t>>;

struct started_node {
  wired_node_actor node;
  node_parts parts;
  endpoint bound; // in client mode: for HTTP only
  node_context ctx;
  std::shared_ptr<status_board> board;
  std::shared_ptr<net::port_mapping> ports; // mapped until the last copy ends; null: none
};

/// Binds the address, then starts a peer in `system`: transport, switchboard, DHT, progress,
/// metrics, and the configured parts. If it fails (ec::bad_config), nothing runs.
result<started_node> start_node(caf::actor_system& system, const node_config& config,
                                const node_dependencies& dependencies);

/// Checks everything that would otherwise end an averager as soon as it starts.
status check_averaging_parts(const node_config::averaging_parts& parts, bool client_mode);
/// Which parts a peer may have, and that no two matchmakers have one prefix, by which the requests
/// of other peers are distributed.
status check_node_config(const node_config& config);
/// Starts the actors of one more averager.
using averaging_factory = std::function<averaging_actors(const node_config::averaging_parts&)>;
/// The switchboard passes other peers' messages about its vector to it, and tells it of links.
void connect_averaging(const wired_switchboard_actor& links, const averaging_actors& made);

/// All actors that are alive, in the order in which they end.
std::vector<caf::strong_actor_ptr> everybody(const node_parts& parts);

/// The actor that has the state that the donor gives away.
snapshot_source_actor snapshot_source(const node_parts& parts);

} // namespace waggle
