#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/bytes.hpp"
#include "runtime/core/error.hpp"
#include "runtime/dht/record.hpp"

namespace waggle {

/// Whose record it is, for the limits of the store.
struct record_source {
  /// Its owner has averaged with this peer, or is this peer. Others are strangers: anybody can make
  /// up any number of them.
  bool member = true;
  std::string host{}; // address of the sender; strangers of one host share what strangers may use
};

/// The records that this peer stores for the run: values that expire. Checks which record is newer
/// and the storage limits. REQUIRES: records were checked with `validate_record` before. Not
/// thread-safe.
///
/// Who is refused or evicted, if there is no room:
///
///     an owner that has too many   its own record of the kind that expires first
///     a member's record comes      a stranger's record; only if there is none, another member's
///     a stranger's record comes    a record of the host whose strangers use most of the kind; of
///                                  the own host only one that expires earlier than the new one
///
/// So records of strangers never cost those of members anything, and the strangers of one host
/// never cost those of other hosts more than an equal share.
class record_store {
public:
  struct limits {
    std::uint64_t bytes_max = 64_MiB;
    /// Records of strangers, per kind. 2,500 of the usual size: a run has fewer newcomers at once.
    std::uint64_t stranger_bytes_max = 4_MiB;
    /// Records of one owner and kind. A peer has one about its progress, and one for each search
    /// for a group whose deadline has not passed.
    std::size_t owner_entries_max = 128;
  };

  /// What a record takes beside its texts counts, too: its nodes in five containers, and three
  /// copies of its key. Otherwise empty records would take four times what the limits say.
  static constexpr std::uint64_t overhead = 1_KiB;

  explicit record_store(limits limits) : limits_(limits) {}
  /// Without a limit of their own for strangers.
  explicit record_store(std::uint64_t bytes_max) : limits_{bytes_max, bytes_max} {}
  record_store() : record_store(limits{}) {}

  /// Newest wins: a record is kept if there is none for its (kind, name, subkey), or an older one
  /// by (sequence, expiration). Under one name stands either a regular value or a dictionary: a
  /// regular value is kept if it is newer than all subkeys, and replaces them; a subkey if it is
  /// newer than the regular value. Fails with ec::stale_record, bad_expiry, overloaded (no room).
  /// A refused record changes nothing.
  [[nodiscard]] ec put(const dht_id& key, const record& entry, swarm_time now,
                       const record_source& from = {});

  /// All unexpired records under `key`, including tombstones: those of members, then those of
  /// strangers, each by ascending subkey.
  [[nodiscard]] std::vector<record> get(const dht_id& key, swarm_time now) const;
  /// Calls `take` with each of them, in this order, until it returns false. `take` must not change
  /// the store.
  void visit(const dht_id& key, swarm_time now,
             const std::function<bool(const record&)>& take) const;

  /// Removes expired records.
  void purge(swarm_time now);

  [[nodiscard]] std::size_t size() const { return expiry_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<dht_id> keys() const;

private:
  struct held {
    record entry;
    record_source from;
  };
  using dictionary = std::map<std::string, held>; // by subkey
  struct by_expiry {
    swarm_time expiration;
    dht_id key;
    std::string subkey;
    friend auto operator<=>(const by_expiry&, const by_expiry&) = default;
  };
  using expiring = std::set<by_expiry>;
  /// The strangers' records that came from one host.
  struct share {
    std::uint64_t bytes = 0;
    expiring records;
  };
  using shares = std::map<std::string, share>; // by host
  using owner_of_kind = std::pair<record_kind, std::string>;

  static std::uint64_t size_of(const record& entry);
  [[nodiscard]] const held& at(const by_expiry& what) const;
  void insert(const by_expiry& what, const record& entry, const record_source& from);
  void erase(const by_expiry& what);

  /// The records to evict for a new one.
  class room;

  limits limits_;
  std::map<dht_id, dictionary> values_;
  expiring expiry_; // of all records
  std::map<record_kind, shares> strangers_;
  std::map<owner_of_kind, expiring> owned_;
  std::uint64_t bytes_ = 0;
};

/// True if `a` replaces `b` (same kind, name, subkey).
bool is_newer(const record& a, const record& b);

/// Merges records of one key from several sources: the newest for each subkey, ascending subkey.
class record_merge {
public:
  void add(const record& entry);
  /// Without tombstones and records that expired by `now`; the regular value or the dictionary, as
  /// record_store::put keeps them.
  [[nodiscard]] std::vector<record> live(swarm_time now) const;
  /// The newest ones, also those that `live` leaves out.
  [[nodiscard]] const std::map<std::string, record>& newest() const { return newest_; }
  [[nodiscard]] bool empty() const { return newest_.empty(); }

private:
  std::map<std::string, record> newest_; // by subkey
};

} // namespace waggle
