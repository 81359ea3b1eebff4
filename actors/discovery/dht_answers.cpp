#include "actors/discovery/dht_answers.hpp"

namespace waggle {

wire::dht_found answer_find(const wire::dht_find& question, const peer_id& asker,
                            const routing_table& table, const record_store& store, swarm_time now) {
  std::size_t records_left = wire::records_per_message_max;
  std::size_t bytes_left = wire::header_bytes_max / 2;
  wire::dht_found found;
  for (const auto& key : question.keys) {
    wire::dht_found::answer answer;
    answer.nearest =
      table.nearest(key, wire::nearest_per_key_max, asker, routing_table::of::reached);
    auto fits = [&](const record& entry) {
      auto bytes = entry.name.size() + entry.subkey.size() + entry.value.size() + 160;
      if (records_left == 0 || bytes_left < bytes)
        return false;
      --records_left;
      bytes_left -= bytes;
      answer.records.push_back(entry);
      return true;
    };
    if (!question.nodes_only)
      store.visit(key, now, fits);
    found.answers.push_back(std::move(answer));
  }
  return found;
}

namespace {

/// Why `entry` is not stored; ec::none: it may be.
ec refusal(const record& entry, const dht_id& key, const inbound_call& put,
           const record_source& source, const stored_records& here, swarm_time now) {
  const auto* rules = rules_of(entry.kind);
  if (rules != nullptr && rules->of_applications && !here.config.open_records)
    return ec::not_owner;
  auto valid = validate_record(here.ctx.run_id, entry, now, *here.ctx.verifier);
  if (!valid)
    return valid.error().code;
  // Peers store their own records only, so that each can be held to its limits. Applications have
  // keys of their own.
  if (rules->owned && !rules->of_applications && entry.subkey != put.from.id.raw())
    return ec::not_owner;
  if (source.member)
    return ec::none;
  auto nearer = here.table.nearest(key, here.config.nearer_max, put.from.id);
  bool is_far = nearer.size() == here.config.nearer_max
                && distance(key, nearer.back().id) < distance(key, here.ctx.record.id);
  return is_far ? ec::not_found : ec::none;
}

} // namespace

wire::dht_stored answer_store(const wire::dht_store& put, const inbound_call& call,
                              const stored_records& here) {
  auto now = here.ctx.wall->now();
  record_source source{here.ctx.rounds->has_averaged_with(call.from.id), call.host};
  wire::dht_stored stored;
  for (const auto& entry : put.records) {
    auto key = record_key(here.ctx.run_id, entry.kind, entry.name);
    auto outcome = refusal(entry, key, call, source, here, now);
    if (outcome == ec::none)
      outcome = here.store.put(key, entry, now, source);
    if (outcome != ec::none)
      here.ctx.metrics->count_dht_rejected(outcome);
    stored.outcomes.push_back(outcome);
  }
  return stored;
}

} // namespace waggle
