#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/core/endpoint.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/dht/record.hpp"
#include "runtime/matchmaking/group_key.hpp"

namespace waggle {

/// What a peer says in the DHT while it looks for a group (spec/averaging.md §2.2): "until this
/// moment I can be asked, at these addresses", under the key of its bucket. Makes signed records;
/// whoever has the DHT stores them.
///
/// Invariant: each record is newer than the one before, also where the clock stands still or goes
/// back: the DHT keeps the last word. At most one declaration stands. Not thread-safe.
class group_declaration {
public:
  group_declaration(std::string run_id, peer_record self, std::shared_ptr<const identity> signer)
    : run_id_(std::move(run_id)), self_(std::move(self)), signer_(std::move(signer)) {}

  /// It stands until it expires or is withdrawn.
  [[nodiscard]] record declare(const group_key& bucket, swarm_time expiration, swarm_time now);
  /// The tombstone of what stands; nothing if there is none, or if it is gone by itself.
  [[nodiscard]] std::optional<record> withdraw(swarm_time now);

private:
  void sign(record& entry, swarm_time now);

  std::string run_id_;
  peer_record self_;
  std::shared_ptr<const identity> signer_;
  std::optional<record> standing_;
  std::uint64_t sequence_ = 0; // of the last record
};

struct declared_peer {
  peer_record who; // without addresses if it said none that can be read
  swarm_time expiration{};
};

/// The other side: whoever declared itself by a record that has passed `validate_record`. Its value
/// may be anything; at most addresses_max addresses are believed. Nothing if it names no peer.
std::optional<declared_peer> read_declaration(const record& entry);

} // namespace waggle
