#pragma once

#include <map>
#include <optional>

#include <caf/all.hpp>

#include "actors/dht_joining.hpp"
#include "actors/node_context.hpp"
#include "runtime/dht/lookup.hpp"
#include "runtime/dht/record_store.hpp"
#include "runtime/dht/replication.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

struct dht_config {
  routing_options routing;
  lookup::options search;
  /// Peers that keep a record. More survive more simultaneous failures and cost more traffic.
  std::size_t replicas = 5;
  /// How long one peer may take to answer one request.
  milliseconds request_timeout{2'000};
  /// Lookups at once; more fail with ec::overloaded instead of waiting in a growing queue.
  std::size_t searches_max = 512;
  std::uint64_t store_bytes_max = 64_MiB;
  joining_config joining;
  /// How often buckets are refreshed and expired records dropped.
  milliseconds upkeep_interval{10'000};
  /// A bucket without news for this long is looked up (Kademlia §2.3).
  milliseconds bucket_refresh{900'000};
};

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
    bool ended = false; // the answer was sent; late replies only update the routing table

    // store
    record entry;
    std::optional<replication> writing; // once the nearest peers are known
    caf::typed_response_promise<store_report> stored;
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

  std::optional<dht_joining> joining;
  std::uint64_t self_lookup = 0; // the last lookup of our own id
  /// Our own records that were stored while no other peer was known.
  std::optional<record_store> unheard;
};

/// Owns the routing table and the record store; answers other peers' pings, finds and stores; runs
/// lookups for this peer.
dht_router_impl::behavior_type dht_router(dht_router_impl::stateful_pointer<dht_router_state> self,
                                          node_context ctx, dht_config config,
                                          switchboard_actor switchboard);

} // namespace waggle
