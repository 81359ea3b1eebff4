#pragma once

#include <cstddef>
#include <functional>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::net {

/// What the transport tells whoever counts. Each may be empty; each is called on the I/O thread.
struct net_events {
  /// An inbound connection, request, handshake or frame was refused.
  std::function<void(ec)> refused;
  /// Bytes on the wire. `data`: frames with a body; else control frames.
  std::function<void(bool outbound, bool data, std::size_t bytes)> transferred;
  /// The same of links to other machines only, whatever the frames.
  std::function<void(bool outbound, std::size_t bytes)> carried;
  /// Bytes of bodies that went to or came from a peer on this host without touching the wire.
  std::function<void(bool outbound, std::size_t bytes)> shared;
  /// A peer on this host and we share memory from now on (ec::none), or why we do not.
  std::function<void(ec)> shared_memory;
  /// A peer of the run and we do not link: the options of the two differ (ec::agreement_mismatch),
  /// or both use one identity. `where`: what was dialled; inbound: the host it came from.
  std::function<void(const endpoint& where, bool outbound, const failure& why)> disagreed;
  /// A link was made with a peer that says this of itself.
  std::function<void(const peer_claims&)> linked;
  std::function<void(bool outbound)> opened;
  std::function<void(bool outbound, ec why)> closed;
  std::function<void(ec)> dial_failed;
  std::function<void(const std::string& route, unsigned code, double seconds)> http_served;
};

} // namespace waggle::net
