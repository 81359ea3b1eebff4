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

/// A peer's announcement in the DHT while it searches for a group: until when, and at which
/// addresses, it accepts requests to join, under the key of its bucket. Makes signed records; the
/// caller stores them.
///
/// Invariant: each record has a higher sequence number than the one before, even if the clock
/// stands still or goes back, so that the DHT keeps the last one. At most one declaration is valid
/// at a time. Not thread-safe.
class group_declaration {
public:
  group_declaration(std::string run_id, std::shared_ptr<const identity> signer)
    : run_id_(std::move(run_id)), signer_(std::move(signer)) {}

  /// The declaration is valid until it expires or is withdrawn.
  /// @param addresses at which this peer accepts requests; at most addresses_max are read.
  [[nodiscard]] record declare(const group_key& bucket, const std::vector<endpoint>& addresses,
                               swarm_time expiration, swarm_time now);
  /// The tombstone of the valid declaration; nothing if there is none, or if it has expired.
  [[nodiscard]] std::optional<record> withdraw(swarm_time now);

private:
  void sign(record& entry, swarm_time now);

  std::string run_id_;
  std::shared_ptr<const identity> signer_;
  std::optional<record> current_;
  std::uint64_t sequence_ = 0; // of the last record
};

struct declared_peer {
  peer_record who; // without addresses if the record has none that can be parsed
  swarm_time expiration{};
};

/// Reads a declaration from a record that has passed `validate_record`. The record's value is
/// untrusted; at most addresses_max addresses are read. Nothing if the record names no peer.
std::optional<declared_peer> read_declaration(const record& entry);

} // namespace waggle
