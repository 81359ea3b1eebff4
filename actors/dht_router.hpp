#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/dht/lookup.hpp"
#include "runtime/dht/record_store.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

/// See spec/dht.md §7 for the references' values.
struct dht_config {
  routing_options routing;
  lookup::options search;
  /// Peers that keep a record. More survive more simultaneous failures and cost more traffic.
  std::size_t replicas = 5;
  /// How long one peer may take to answer one request.
  milliseconds request_timeout{2'000};
  /// Lookups at once; more wait for ever-longer queues, so they fail with ec::overloaded.
  std::size_t searches_max = 512;
  std::uint64_t store_bytes_max = 64_MiB;
  /// Back-off of the bootstrap while nobody is known.
  milliseconds bootstrap_retry_min{1'000};
  milliseconds bootstrap_retry_max{60'000};
  /// How often buckets are refreshed, expired records dropped and lost peers tried again.
  milliseconds upkeep_interval{10'000};
  /// A bucket without news for this long is looked up (Kademlia §2.3).
  milliseconds bucket_refresh{900'000};
  /// Peers that were lost and may come back (a partition, a restart), tried in turn at each upkeep.
  std::size_t lost_peers_max = 32;
};

/// To itself: a search's time is up.
struct search_expired {
  std::uint64_t search = 0;
};
/// To itself: try the bootstrap addresses (again).
struct retry_bootstrap {};
/// To itself: periodic upkeep.
struct tend_table {};

struct dht_router_state {
  static inline const char* name = "dht-router";

  struct search {
    enum class purpose : std::uint8_t { store, find, locate, refresh };
    search(purpose what, const dht_id& target, lookup path, steady_time now)
      : why(what), key(target), way(std::move(path)), began(now) {}

    purpose why;
    dht_id key;
    lookup way;
    steady_time began;
    bool ended = false; // the answer is out; late replies are only news for the table

    // store
    record entry;
    store_report report;
    std::deque<peer_record> replicas; // still to try
    std::size_t storing = 0;
    caf::typed_response_promise<store_report> stored;
    bool writing = false;
    // find
    record_kind kind = record_kind::open;
    bool latest = true;
    record_merge merge;
    caf::typed_response_promise<found_records> found;
    // locate
    peer_id peer;
    caf::typed_response_promise<found_peer> located;
  };

  std::optional<routing_table> table;
  std::optional<record_store> store;
  std::map<std::uint64_t, search> searches;
  std::uint64_t last_search = 0;
  std::optional<random_source> random;

  std::vector<endpoint> bootstrap;
  std::map<endpoint, peer_id> bootstrap_peers; // who answered there
  std::map<endpoint, std::string> bootstrap_failures;
  std::size_t bootstrap_pending = 0;
  milliseconds retry{0};
  bool retry_due = false; // a retry_bootstrap is on its way
  bool joined = false;
  std::set<peer_id> connected;
  std::deque<peer_record> lost; // oldest first
};

using dht_router_impl =
  dht_router_actor::extend<caf::reacts_to<search_expired>, caf::reacts_to<retry_bootstrap>,
                           caf::reacts_to<tend_table>>;

/// Owns the routing table and the record store; answers other peers' pings, finds and stores; runs
/// lookups for this peer.
dht_router_impl::behavior_type dht_router(dht_router_impl::stateful_pointer<dht_router_state> self,
                                          node_context ctx, dht_config config,
                                          switchboard_actor switchboard);

} // namespace waggle

WAGGLE_LOCAL(search_expired)
WAGGLE_LOCAL(retry_bootstrap)
WAGGLE_LOCAL(tend_table)
