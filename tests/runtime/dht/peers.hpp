#pragma once

#include "runtime/core/random.hpp"
#include "runtime/dht/routing_table.hpp"

namespace waggle {

/// A peer with a random id and an arbitrary key.
inline peer_record random_peer(random_source& random) {
  peer_record peer;
  random.fill(peer.id.bytes);
  peer.addresses = {{"10.0.0.1", 7700}};
  return peer;
}

/// A peer whose id begins with `first`.
inline peer_record peer_at(unsigned first, unsigned last = 0) {
  peer_record peer;
  peer.id.bytes[0] = static_cast<std::byte>(first);
  peer.id.bytes[31] = static_cast<std::byte>(last);
  peer.addresses = {{"10.0.0.1", 7700}};
  return peer;
}

} // namespace waggle
