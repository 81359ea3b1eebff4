#include "waggle/dht.hpp"

#include "actors/service/running_node.hpp"

namespace waggle {

result<record> open_record(const node_context& ctx, const std::string& key,
                           const std::string& subkey, const std::string& value,
                           milliseconds lifetime) {
  if (lifetime <= 0ms || lifetime > 24h)
    return failure{ec::bad_expiry, "the lifetime must be more than 0 and at most a day"};
  record entry;
  entry.kind = record_kind::open;
  entry.name = key;
  entry.subkey = subkey;
  entry.value = value;
  auto now = ctx.wall->now();
  entry.expiration = now + lifetime;
  if (auto valid = validate_record(ctx.run_id, entry, now, *ctx.verifier); !valid)
    return valid.error();
  return entry;
}

status put_status(const result<store_report>& answer, const std::string& key) {
  if (!answer)
    return answer.error();
  if (answer.value().accepted > 0)
    return done{};
  if (answer.value().rejected > 0)
    return failure{answer.value().last_rejection,
                   "all peers that were asked refused to store " + key};
  return failure{ec::timeout, "no peer answered that was asked to store " + key};
}

result<std::map<std::string, std::string>> values_of(const result<found_records>& answer) {
  if (!answer)
    return answer.error();
  std::map<std::string, std::string> all;
  for (const auto& entry : answer.value().records)
    all.emplace(entry.subkey, entry.value);
  return all;
}

status dht::put(const std::string& key, const std::string& subkey, const std::string& value,
                milliseconds lifetime, milliseconds timeout) {
  auto entry = open_record(peer_->node.ctx, key, subkey, value, lifetime);
  if (!entry)
    return entry.error();
  return put_status(peer_->ask<store_report>(peer_->node.parts.dht, timeout + dht_margin,
                                             store_record{std::move(*entry), timeout}),
                    key);
}

result<std::map<std::string, std::string>> dht::get(const std::string& key, milliseconds timeout) {
  find_records query;
  query.name = key;
  query.timeout = timeout;
  return values_of(
    peer_->ask<found_records>(peer_->node.parts.dht, timeout + dht_margin, std::move(query)));
}

} // namespace waggle
