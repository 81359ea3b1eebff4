#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/error.hpp"
#include "runtime/dht/record.hpp"

namespace waggle {

/// The records that this peer stores for the run: values that expire. Checks which record is newer
/// and the storage limits. REQUIRES: records were checked with `validate_record` before. Not
/// thread-safe.
class record_store {
public:
  explicit record_store(std::uint64_t bytes_max = 64_MiB) : bytes_max_(bytes_max) {}

  /// Newest wins: a record is kept if there is none for its (kind, name, subkey), or an older one
  /// by (sequence, expiration). Fails with ec::stale_record, bad_expiry, overloaded (the dictionary
  /// or the store is full and nothing in it expires earlier). A refused record changes nothing.
  [[nodiscard]] ec put(const dht_id& key, const record& entry, swarm_time now);

  /// All unexpired records under `key`, including tombstones, by ascending subkey.
  [[nodiscard]] std::vector<record> get(const dht_id& key, swarm_time now) const;

  /// Removes expired records.
  void purge(swarm_time now);

  [[nodiscard]] std::size_t size() const { return entries_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<dht_id> keys() const;

private:
  using dictionary = std::map<std::string, record>; // by subkey
  struct by_expiry {
    swarm_time expiration;
    dht_id key;
    std::string subkey;
    friend auto operator<=>(const by_expiry&, const by_expiry&) = default;
  };

  static std::uint64_t size_of(const record& entry);
  void erase(const by_expiry& what);

  std::uint64_t bytes_max_;
  std::map<dht_id, dictionary> values_;
  std::set<by_expiry> expiry_;
  std::size_t entries_ = 0;
  std::uint64_t bytes_ = 0;
};

/// True if `a` replaces `b` (same kind, name, subkey).
bool is_newer(const record& a, const record& b);

/// Merges records of one key from several sources: the newest for each subkey, ascending subkey.
class record_merge {
public:
  void add(const record& entry);
  /// Without tombstones and records that expired by `now`.
  [[nodiscard]] std::vector<record> live(swarm_time now) const;
  [[nodiscard]] bool empty() const { return newest_.empty(); }

private:
  std::map<std::string, record> newest_;
};

} // namespace waggle
