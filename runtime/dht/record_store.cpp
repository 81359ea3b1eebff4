#include "runtime/dht/record_store.hpp"

#include <optional>
#include <tuple>

namespace waggle {

bool is_newer(const record& a, const record& b) {
  return std::tie(a.sequence, a.expiration) > std::tie(b.sequence, b.expiration);
}

std::uint64_t record_store::size_of(const record& entry) {
  return sizeof(record) + entry.name.size() + 2 * entry.subkey.size() + entry.value.size();
}

void record_store::erase(const by_expiry& what) {
  auto values = values_.find(what.key);
  auto entry = values->second.find(what.subkey);
  bytes_ -= size_of(entry->second);
  --entries_;
  values->second.erase(entry);
  if (values->second.empty())
    values_.erase(values);
  expiry_.erase(what);
}

ec record_store::put(const dht_id& key, const record& entry, swarm_time now) {
  if (entry.expiration <= now)
    return ec::bad_expiry;
  purge(now);
  const auto* rules = rules_of(entry.kind);
  if (rules == nullptr)
    return ec::protocol_violation;
  std::optional<by_expiry> replaced;
  auto size = size_of(entry);
  auto room = bytes_max_ - bytes_;
  if (auto values = values_.find(key); values != values_.end()) {
    auto held = values->second.find(entry.subkey);
    if (held != values->second.end()) {
      if (!is_newer(entry, held->second))
        return ec::stale_record;
      replaced = by_expiry{held->second.expiration, key, entry.subkey};
      room += size_of(held->second);
    } else if (values->second.size() >= rules->entries_max) {
      return ec::overloaded;
    }
  }
  // Over the quota, the records that expire first are evicted; that may be the new one. Nothing is
  // erased before it is certain that the new one fits.
  std::vector<by_expiry> evicted;
  for (auto next = expiry_.begin(); room < size; ++next) {
    if (next == expiry_.end() || next->expiration >= entry.expiration)
      return ec::overloaded;
    if (replaced && *next == *replaced)
      continue;
    room += size_of(values_.at(next->key).at(next->subkey));
    evicted.push_back(*next);
  }
  for (const auto& what : evicted)
    erase(what);
  if (replaced)
    erase(*replaced);
  values_[key].emplace(entry.subkey, entry);
  expiry_.insert({entry.expiration, key, entry.subkey});
  bytes_ += size;
  ++entries_;
  return ec::none;
}

std::vector<record> record_store::get(const dht_id& key, swarm_time now) const {
  std::vector<record> out;
  if (auto values = values_.find(key); values != values_.end())
    for (const auto& [subkey, entry] : values->second)
      if (entry.expiration > now)
        out.push_back(entry);
  return out;
}

void record_store::purge(swarm_time now) {
  while (!expiry_.empty() && expiry_.begin()->expiration <= now)
    erase(by_expiry{*expiry_.begin()});
}

std::vector<dht_id> record_store::keys() const {
  std::vector<dht_id> out;
  for (const auto& [key, values] : values_)
    out.push_back(key);
  return out;
}

void record_merge::add(const record& entry) {
  auto [held, fresh] = newest_.emplace(entry.subkey, entry);
  if (!fresh && is_newer(entry, held->second))
    held->second = entry;
}

std::vector<record> record_merge::live(swarm_time now) const {
  std::vector<record> out;
  for (const auto& [subkey, entry] : newest_)
    if (!entry.tombstone && entry.expiration > now)
      out.push_back(entry);
  return out;
}

} // namespace waggle
