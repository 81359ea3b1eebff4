#pragma once

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

/// Stores those of another peer's records that are genuine and newer than the ones in `store`; one
/// outcome per record.
wire::dht_stored answer_store(const wire::dht_store& put, const node_context& ctx,
                              record_store& store);

} // namespace waggle
