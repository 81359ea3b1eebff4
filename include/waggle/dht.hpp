#pragma once

// The distributed hash table of a run, for small values of a service. Link waggle::actors.

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "runtime/crypto/identity.hpp"
#include "waggle/node.hpp"

namespace waggle {

struct dated_value {
  std::string value;
  swarm_time expires; // on the clock that the peers compare (environment::clock)
};

/// The part of the DHT that is open to applications, seen from one peer. Any peer of the run can
/// read it, and replace what `put` has stored:
///
///     auto key = waggle::identity::load_or_create("/var/lib/birds/key.pem"); // Ed25519, mode 0600
///     table.put_owned(**key, "models", "v7", 1h);                            // with *key held
///     table.get_owned("models")->at((*key)->id());                           // "v7", on any peer
///
/// Peers of `waggle train` and waggle::loop in the run refuse to store it for others. Thread-safe.
/// Keeps the peer's threads alive, but not the peer.
class dht {
public:
  explicit dht(const node& peer) : peer_(peer.running()) {}

  /// Stores `value` under (key, subkey) at the peers nearest to the key, for `lifetime`, at most a
  /// day. The value that expires last replaces others. Fails with ec::oversize and the bound,
  /// ec::timeout, or the reason why no peer stored it.
  [[nodiscard]] status put(const std::string& key, const std::string& subkey,
                           const std::string& value, std::chrono::milliseconds lifetime,
                           std::chrono::milliseconds timeout = std::chrono::seconds{10});
  /// Stores `value` under the key as the one of `owner`, signed: nobody else can replace it, or
  /// forge one of this owner. Its newer value replaces an older one, also of another process with
  /// the same key pair. An owner may have 128 keys. Fails as `put` does.
  [[nodiscard]] status put_owned(const identity& owner, const std::string& key,
                                 const std::string& value, std::chrono::milliseconds lifetime,
                                 std::chrono::milliseconds timeout = std::chrono::seconds{10});
  /// All such values under the key, by identity::id of their owners: an application knows whose it
  /// believes. Anybody may add one of his own.
  [[nodiscard]] result<std::map<peer_id, std::string>>
  get_owned(const std::string& key, std::chrono::milliseconds timeout = std::chrono::seconds{10});
  /// All values under the key, by subkey; empty if there are none. A value without a subkey stands
  /// alone: it replaces those with subkeys if it expires after all of them, and the other way
  /// round.
  [[nodiscard]] result<std::map<std::string, std::string>>
  get(const std::string& key, std::chrono::milliseconds timeout = std::chrono::seconds{10});
  /// The same, and when each expires.
  [[nodiscard]] result<std::map<std::string, dated_value>>
  get_dated(const std::string& key, std::chrono::milliseconds timeout = std::chrono::seconds{10});

private:
  std::shared_ptr<running_node> peer_;
};

} // namespace waggle
