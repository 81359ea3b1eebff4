#include "waggle/dht.hpp"

#include "actors/service/running_node.hpp"
#include "runtime/core/try.hpp"

namespace waggle {

result<record> application_record(const node_context& ctx, const std::string& key,
                                  const std::string& subkey, const std::string& value,
                                  milliseconds lifetime, const identity* owner) {
  auto kind = owner != nullptr ? record_kind::owned : record_kind::open;
  const auto& rules = *rules_of(kind);
  auto fits = [](const char* name, const std::string& text, std::size_t least,
                 std::size_t most) -> status {
    if (text.size() >= least && text.size() <= most)
      return done{};
    return failure{ec::oversize, std::string{"the "} + name + " has " + std::to_string(text.size())
                                   + " bytes: it may have " + std::to_string(least) + " to "
                                   + std::to_string(most)};
  };
  for (const auto& valid : {fits("key", key, 1, rules.name_bytes_max),
                            fits("subkey", subkey, 0, rules.subkey_bytes_max),
                            fits("value", value, 0, rules.value_bytes_max)})
    if (!valid)
      return valid.error();
  if (lifetime <= 0ms || lifetime > rules.time_to_live_max)
    return failure{ec::bad_expiry, "the lifetime must be more than 0 and at most a day"};
  record entry{.kind = kind, .name = key, .subkey = subkey, .value = value};
  auto now = ctx.wall->now();
  entry.expiration = now + lifetime;
  if (owner != nullptr) {
    // Later than all before it, also those of a process before this one.
    entry.sequence = static_cast<std::uint64_t>(to_nanoseconds(now));
    sign_record(ctx.run_id, *owner, entry);
  }
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

std::map<std::string, dated_value> dated_values_of(const found_records& answer) {
  std::map<std::string, dated_value> all;
  for (const auto& entry : answer.records)
    all.emplace(entry.subkey, dated_value{entry.value, entry.expiration});
  return all;
}

result<std::map<std::string, std::string>> values_of(const result<found_records>& answer) {
  if (!answer)
    return answer.error();
  std::map<std::string, std::string> all;
  for (const auto& entry : answer.value().records)
    all.emplace(entry.subkey, entry.value);
  return all;
}

namespace {

status store(const running_node& peer, const std::string& key, result<record> entry,
             milliseconds timeout) {
  if (!entry)
    return entry.error();
  WAGGLE_TRY(valid, check_timeout(timeout, "timeout"));
  return put_status(peer.ask<store_report>(peer.node.parts.dht, timeout + dht_margin,
                                           store_record{std::move(*entry), timeout}),
                    key);
}

result<found_records> find(const running_node& peer, record_kind kind, const std::string& key,
                           milliseconds timeout) {
  WAGGLE_TRY(valid, check_timeout(timeout, "timeout"));
  find_records query{.kind = kind, .name = key, .timeout = timeout};
  return peer.ask<found_records>(peer.node.parts.dht, timeout + dht_margin, std::move(query));
}

} // namespace

status dht::put(const std::string& key, const std::string& subkey, const std::string& value,
                milliseconds lifetime, milliseconds timeout) {
  return store(*peer_, key, application_record(peer_->node.ctx, key, subkey, value, lifetime),
               timeout);
}

status dht::put_owned(const identity& owner, const std::string& key, const std::string& value,
                      milliseconds lifetime, milliseconds timeout) {
  return store(*peer_, key, application_record(peer_->node.ctx, key, {}, value, lifetime, &owner),
               timeout);
}

result<std::map<peer_id, std::string>> dht::get_owned(const std::string& key,
                                                      milliseconds timeout) {
  WAGGLE_TRY(found, find(*peer_, record_kind::owned, key, timeout));
  std::map<peer_id, std::string> all;
  for (const auto& entry : found->records)
    all.emplace(peer_id_of(entry.owner), entry.value);
  return all;
}

result<std::map<std::string, std::string>> dht::get(const std::string& key, milliseconds timeout) {
  return values_of(find(*peer_, record_kind::open, key, timeout));
}

result<std::map<std::string, dated_value>> dht::get_dated(const std::string& key,
                                                          milliseconds timeout) {
  WAGGLE_TRY(found, find(*peer_, record_kind::open, key, timeout));
  return dated_values_of(*found);
}

} // namespace waggle
