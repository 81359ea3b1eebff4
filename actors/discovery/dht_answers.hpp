#pragma once

#include "actors/discovery/dht_router.hpp"
#include "actors/node_context.hpp"
#include "runtime/dht/record_store.hpp"
#include "runtime/dht/routing_table.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// The answer to `question` for `asker`: the peers that we know near its keys, and the records that
/// we store under them. The answer stays within the message limits, whatever is stored here;
/// records that do not fit are omitted, and the asker merges the answers of several peers.
wire::dht_found answer_find(const wire::dht_find& question, const peer_id& asker,
                            const routing_table& table, const record_store& store, swarm_time now);

/// What decides whether a record is stored here.
struct stored_records {
  const node_context& ctx;
  const dht_config& config;
  const routing_table& table;
  record_store& store;
};

/// Stores those records of the calling peer that are its own, genuine and newer than the stored
/// ones, as far as the limits of `here` permit; one outcome per record. ec::not_owner: of another
/// peer, or of a kind that anybody may write; ec::not_found: a stranger's, and we know many peers
/// that are nearer to its key.
wire::dht_stored answer_store(const wire::dht_store& put, const inbound_call& call,
                              const stored_records& here);

} // namespace waggle
