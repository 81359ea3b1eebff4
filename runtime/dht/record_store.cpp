#include "runtime/dht/record_store.hpp"

#include <algorithm>
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

/// Makes room for one new record. What was evicted comes back, unless the record fits at last.
class record_store::room {
public:
  room(record_store& store, const dht_id& key, const record& entry, const record_source& from)
    : store_(store), key_(key), entry_(entry), from_(from) {}
  ~room() {
    for (const auto& [what, each] : evicted_)
      store_.insert(what, each.entry, each.from);
  }
  room(const room&) = delete;
  room& operator=(const room&) = delete;

  void evict(by_expiry what) {
    auto each = store_.at(what);
    store_.erase(what);
    evicted_.emplace_back(std::move(what), std::move(each));
  }

  /// False: there is no room.
  bool make() {
    const auto& limits = store_.limits_;
    const auto* rules = rules_of(entry_.kind);
    owner_of_kind owner{entry_.kind, entry_.subkey};
    if (rules->owned)
      while (size_in(store_.owned_, owner) >= limits.owner_entries_max)
        evict(*store_.owned_.at(owner).begin());
    while (size_in(store_.values_, key_) >= rules->entries_max)
      if (!evict_any([&](const by_expiry& what) { return what.key == key_; }, false))
        return false;
    auto size = size_of(entry_);
    while (!from_.member && strangers_bytes() + size > limits.stranger_bytes_max)
      if (!evict_any(
            [&](const by_expiry& what) { return store_.at(what).entry.kind == entry_.kind; }, true))
        return false;
    while (store_.bytes_ + size > limits.bytes_max)
      if (!evict_any([](const by_expiry&) { return true; }, true))
        return false;
    evicted_.clear();
    return true;
  }

private:
  template <class Map, class Key>
  static std::size_t size_in(const Map& all, const Key& key) {
    auto found = all.find(key);
    return found == all.end() ? 0 : found->second.size();
  }

  /// Of the kind.
  [[nodiscard]] shares& strangers() const { return store_.strangers_[entry_.kind]; }

  [[nodiscard]] std::uint64_t strangers_bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [host, own] : strangers())
      sum += own.bytes;
    return sum;
  }

  /// Evicts the next record among those for which `may` is true. False: none.
  /// @param alike whether it may be one of a source with the same right to the room.
  template <class Filter>
  bool evict_any(Filter may, bool alike) {
    auto first = [&](const expiring& all, auto also) {
      auto found =
        std::ranges::find_if(all, [&](const by_expiry& what) { return may(what) && also(what); });
      if (found == all.end())
        return false;
      evict(*found);
      return true;
    };
    auto is_earlier = [&](const by_expiry& what) {
      return alike && what.expiration < entry_.expiration;
    };
    if (from_.member)
      return first(store_.expiry_,
                   [&](const by_expiry& what) { return !store_.at(what).from.member; })
             || first(store_.expiry_, is_earlier);
    // The host whose strangers use most of the kind, once the new record is there.
    auto most = strangers().find(from_.host);
    auto bytes = (most == strangers().end() ? 0 : most->second.bytes) + size_of(entry_);
    for (auto other = strangers().begin(); other != strangers().end(); ++other)
      if (other->second.bytes > bytes) {
        bytes = other->second.bytes;
        most = other;
      }
    if (most == strangers().end())
      return false;
    return most->first == from_.host
             ? first(most->second.records, is_earlier)
             : first(most->second.records, [](const by_expiry&) { return true; });
  }

  record_store& store_;
  const dht_id& key_;
  const record& entry_;
  const record_source& from_;
  std::vector<std::pair<by_expiry, held>> evicted_;
};

ec record_store::put(const dht_id& key, const record& entry, swarm_time now,
                     const record_source& from) {
  if (entry.expiration <= now)
    return ec::bad_expiry;
  purge(now);
  if (rules_of(entry.kind) == nullptr)
    return ec::protocol_violation;
  room needed{*this, key, entry, from};
  std::vector<by_expiry> replaced;
  if (auto values = values_.find(key); values != values_.end())
    for (const auto& [subkey, old] : values->second)
      if (subkey == entry.subkey || subkey.empty() || entry.subkey.empty()) {
        if (!is_newer(entry, old.entry))
          return ec::stale_record;
        replaced.push_back({old.entry.expiration, key, subkey});
      }
  for (auto& what : replaced)
    needed.evict(std::move(what));
  if (!needed.make())
    return ec::overloaded;
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
  if (out.size() > 1 && out.front().subkey.empty()) {
    const auto& regular = out.front();
    if (std::all_of(out.begin() + 1, out.end(),
                    [&](const auto& x) { return is_newer(regular, x); }))
      out.resize(1);
    else
      out.erase(out.begin());
  }
  return out;
}

} // namespace waggle
