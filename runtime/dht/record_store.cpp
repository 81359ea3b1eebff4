#include "runtime/dht/record_store.hpp"

#include <tuple>

namespace waggle {

bool is_newer(const record& a, const record& b) {
  return std::tie(a.sequence, a.expiration) > std::tie(b.sequence, b.expiration);
}

std::uint64_t record_store::size_of(const record& entry) {
  return overhead + sizeof(record) + entry.name.size() + 2 * entry.subkey.size()
         + entry.value.size();
}

const record_store::held& record_store::at(const by_expiry& what) const {
  return values_.at(what.key).at(what.subkey);
}

void record_store::insert(const by_expiry& what, const record& entry, const record_source& from) {
  values_[what.key].emplace(what.subkey, held{entry, from});
  expiry_.insert(what);
  owned_[{entry.kind, entry.subkey}].insert(what);
  bytes_ += size_of(entry);
  if (from.member)
    return;
  auto& own = strangers_[entry.kind][from.host];
  own.bytes += size_of(entry);
  own.records.insert(what);
}

void record_store::erase(const by_expiry& what) {
  auto values = values_.find(what.key);
  auto found = values->second.find(what.subkey);
  const auto& [entry, from] = found->second;
  bytes_ -= size_of(entry);
  auto owned = owned_.find({entry.kind, entry.subkey});
  owned->second.erase(what);
  if (owned->second.empty())
    owned_.erase(owned);
  if (!from.member) {
    auto& hosts = strangers_.at(entry.kind);
    auto own = hosts.find(from.host);
    own->second.bytes -= size_of(entry);
    own->second.records.erase(what);
    if (own->second.records.empty())
      hosts.erase(own);
  }
  values->second.erase(found);
  if (values->second.empty())
    values_.erase(values);
  expiry_.erase(what);
}

/// Chooses what to evict for one new record; nothing is erased before it is certain that it fits.
class record_store::room {
public:
  room(const record_store& store, const dht_id& key, const record& entry, const record_source& from)
    : store_(store), key_(key), entry_(entry), from_(from), limits_(store.limits_),
      bytes_(store.bytes_) {
    if (auto hosts = store.strangers_.find(entry.kind); hosts != store.strangers_.end())
      for (const auto& [host, own] : hosts->second) {
        used_[host] = own.bytes;
        strangers_bytes_ += own.bytes;
      }
    if (auto values = store.values_.find(key); values != store.values_.end())
      entries_ = values->second.size();
  }

  /// `what` will not be there any more.
  void remove(const by_expiry& what) {
    if (!chosen_.insert(what).second)
      return;
    const auto& [entry, from] = store_.at(what);
    auto size = size_of(entry);
    bytes_ -= size;
    entries_ -= what.key == key_ ? 1 : 0;
    if (!from.member && entry.kind == entry_.kind) {
      strangers_bytes_ -= size;
      used_[from.host] -= size;
    }
  }

  /// False: there is no room.
  bool make() {
    trim_owner();
    auto entries_max = rules_of(entry_.kind)->entries_max;
    while (entries_ >= entries_max)
      if (!remove_any([&](const by_expiry& what) { return what.key == key_; }, false))
        return false;
    auto size = size_of(entry_);
    while (!from_.member && strangers_bytes_ + size > limits_.stranger_bytes_max)
      if (!remove_any([&](const by_expiry& what) { return is_of_kind(what); }, true))
        return false;
    while (bytes_ + size > limits_.bytes_max)
      if (!remove_any([](const by_expiry&) { return true; }, true))
        return false;
    return true;
  }

  [[nodiscard]] const expiring& chosen() const { return chosen_; }

private:
  void trim_owner() {
    auto owned = store_.owned_.find({entry_.kind, entry_.subkey});
    if (owned == store_.owned_.end() || !rules_of(entry_.kind)->owned)
      return;
    auto left = owned->second.size();
    for (const auto& what : owned->second)
      if (chosen_.contains(what))
        --left;
    for (auto i = owned->second.begin(); left >= limits_.owner_entries_max; ++i)
      if (!chosen_.contains(*i)) {
        remove(*i);
        --left;
      }
  }

  [[nodiscard]] bool is_of_kind(const by_expiry& what) const {
    return store_.at(what).entry.kind == entry_.kind;
  }

  /// The host whose strangers use most of the kind.
  [[nodiscard]] std::string heaviest() const {
    auto own = used_.find(from_.host);
    auto most = (own == used_.end() ? 0 : own->second) + size_of(entry_);
    auto host = from_.host;
    for (const auto& [other, bytes] : used_)
      if (bytes > most) {
        most = bytes;
        host = other;
      }
    return host;
  }

  /// Removes the next record to evict among those for which `may` is true. False: none.
  /// @param alike whether it may be one of a source with the same right to the room.
  template <class Filter>
  bool remove_any(Filter may, bool alike) {
    auto first = [&](const expiring& all, auto also) {
      for (const auto& what : all)
        if (!chosen_.contains(what) && may(what) && also(what)) {
          remove(what);
          return true;
        }
      return false;
    };
    auto is_earlier = [&](const by_expiry& what) {
      return alike && what.expiration < entry_.expiration;
    };
    if (from_.member)
      return first(store_.expiry_,
                   [&](const by_expiry& what) { return !store_.at(what).from.member; })
             || first(store_.expiry_, is_earlier);
    auto hosts = store_.strangers_.find(entry_.kind);
    if (hosts == store_.strangers_.end())
      return false;
    auto host = heaviest();
    auto share = hosts->second.find(host);
    if (share == hosts->second.end())
      return false;
    return host == from_.host ? first(share->second.records, is_earlier)
                              : first(share->second.records, [](const by_expiry&) { return true; });
  }

  const record_store& store_;
  const dht_id& key_;
  const record& entry_;
  const record_source& from_;
  const limits& limits_;
  expiring chosen_;
  std::map<std::string, std::uint64_t> used_; // bytes of strangers' records of the kind, by host
  std::uint64_t strangers_bytes_ = 0;         // their sum
  std::uint64_t bytes_;                       // of all records
  std::size_t entries_ = 0;                   // in the dictionary
};

ec record_store::put(const dht_id& key, const record& entry, swarm_time now,
                     const record_source& from) {
  if (entry.expiration <= now)
    return ec::bad_expiry;
  purge(now);
  if (rules_of(entry.kind) == nullptr)
    return ec::protocol_violation;
  room needed{*this, key, entry, from};
  if (auto values = values_.find(key); values != values_.end())
    if (auto old = values->second.find(entry.subkey); old != values->second.end()) {
      if (!is_newer(entry, old->second.entry))
        return ec::stale_record;
      needed.remove({old->second.entry.expiration, key, entry.subkey});
    }
  if (!needed.make())
    return ec::overloaded;
  for (const auto& what : needed.chosen())
    erase(what);
  insert({entry.expiration, key, entry.subkey}, entry, from);
  return ec::none;
}

std::vector<record> record_store::get(const dht_id& key, swarm_time now) const {
  std::vector<record> out;
  visit(key, now, [&](const record& entry) {
    out.push_back(entry);
    return true;
  });
  return out;
}

void record_store::visit(const dht_id& key, swarm_time now,
                         const std::function<bool(const record&)>& take) const {
  auto values = values_.find(key);
  if (values == values_.end())
    return;
  for (bool members : {true, false})
    for (const auto& [subkey, each] : values->second)
      if (each.from.member == members && each.entry.expiration > now && !take(each.entry))
        return;
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
