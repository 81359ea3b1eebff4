#include "actors/dht_answers.hpp"

namespace waggle {

wire::dht_found answer_find(const wire::dht_find& question, const peer_id& asker,
                            const routing_table& table, const record_store& store, swarm_time now) {
  std::size_t records_left = wire::records_per_message_max;
  std::size_t bytes_left = wire::header_bytes_max / 2;
  wire::dht_found found;
  for (const auto& key : question.keys) {
    wire::dht_found::answer answer;
    answer.nearest = table.nearest(key, wire::nearest_per_key_max, asker);
    if (!question.nodes_only)
      for (auto& entry : store.get(key, now)) {
        auto bytes = entry.name.size() + entry.subkey.size() + entry.value.size() + 160;
        if (records_left == 0 || bytes_left < bytes)
          break;
        --records_left;
        bytes_left -= bytes;
        answer.records.push_back(std::move(entry));
      }
    found.answers.push_back(std::move(answer));
  }
  return found;
}

wire::dht_stored answer_store(const wire::dht_store& put, const node_context& ctx,
                              record_store& store) {
  auto now = ctx.wall->now();
  wire::dht_stored stored;
  for (const auto& entry : put.records) {
    auto valid = validate_record(ctx.run_id, entry, now, *ctx.verifier);
    auto outcome = valid ? store.put(record_key(ctx.run_id, entry.kind, entry.name), entry, now)
                         : valid.error().code;
    if (outcome != ec::none)
      ctx.metrics->count_dht_rejected(outcome);
    stored.outcomes.push_back(outcome);
  }
  return stored;
}

} // namespace waggle
