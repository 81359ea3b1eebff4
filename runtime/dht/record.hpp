#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

/// A point of the DHT's 256-bit space: the hash of a key, or a peer id.
using dht_id = byte_id<struct dht_id_tag, 32>;

inline dht_id dht_id_of(const peer_id& peer) {
  return {peer.bytes};
}

/// The kind of a record; it determines who may write it and how large it may be. Sent on the wire:
/// only append values.
enum class record_kind : std::uint8_t {
  /// A dictionary that any peer may write, unsigned. For tests, benchmarks and embedding
  /// applications.
  open = 0,
  /// One peer's training progress; the subkey is its peer id, signed by it.
  progress = 1,
  /// The peer is looking for a group under this key; the subkey is its peer id, signed by it.
  group_member = 2,
  /// An application's value, signed by a key of its own; the subkey is the id of that key.
  owned = 3,
};

/// One value in the DHT. Records of one (kind, name) with different subkeys form a dictionary; a
/// regular value is a record with an empty subkey.
///
/// Of two records for the same (kind, name, subkey) the one with the later (sequence, expiration)
/// wins. A tombstone hides older records until it expires.
struct record {
  record_kind kind = record_kind::open;
  std::string name{};   // application key, unhashed, e.g. "demo_progress"
  std::string subkey{}; // raw bytes; the owner's raw peer id for owned kinds
  std::string value{};  // raw bytes
  swarm_time expiration{};
  std::uint64_t sequence = 0;
  bool tombstone = false;
  public_key owner{}; // zero: unsigned
  signature by{};     // by the owner, over `signed_bytes`; zero: unsigned

  friend bool operator==(const record&, const record&) = default;
};

/// The DHT key of a record: SHA-256 over run id, kind and name, each length-prefixed.
dht_id record_key(std::string_view run_id, record_kind kind, std::string_view name);

/// What the owner signs: a domain string, the run id and every field except the signature.
std::string signed_bytes(std::string_view run_id, const record& entry);

/// Tells this record from every other one, also from an older or newer one of its subkey.
std::uint64_t record_tag(std::string_view run_id, const record& entry);

/// Fills `owner` and `by`; for owned kinds also `subkey`.
void sign_record(std::string_view run_id, const identity& owner, record& entry);

/// Ownership rule and limits of a kind.
struct record_rules {
  bool owned = true;            // signed, and the subkey is the owner's peer id
  bool of_applications = false; // peers that train do not store it for others
  std::size_t name_bytes_max = 256;
  std::size_t subkey_bytes_max = 64;
  std::size_t value_bytes_max = 0;
  std::size_t entries_max = 4096;
  std::chrono::seconds time_to_live_max{86'400};
};

/// Null for a kind that this version does not know: such records are refused.
const record_rules* rules_of(record_kind kind);

/// All checks before `entry` is stored or used: kind, limits, finite and future expiration, owner
/// rule, signature.
status validate_record(std::string_view run_id, const record& entry, swarm_time now,
                       const signature_verifier& verifier);

} // namespace waggle
