#pragma once

#include "actors/node_context.hpp"
#include "runtime/dht/record_store.hpp"
#include "runtime/dht/routing_table.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// What `asker` gets to hear about the keys of `question`: whom we know near them, and the records
/// that we keep. A message has to stay under its limits whatever is stored here; what does not fit
/// is left out, the asker merges the answers of several peers.
wire::dht_found answer_find(const wire::dht_find& question, const peer_id& asker,
                            const routing_table& table, const record_store& store, swarm_time now);

/// Keeps those of another peer's records that are genuine and newer than what `store` has; one
/// outcome for each.
wire::dht_stored answer_store(const wire::dht_store& put, const node_context& ctx,
                              record_store& store);

} // namespace waggle
