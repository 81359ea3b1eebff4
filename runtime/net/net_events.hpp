#pragma once

#include <cstddef>
#include <functional>

#include "runtime/core/error.hpp"

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
  std::function<void(bool outbound)> opened;
  std::function<void(bool outbound, ec why)> closed;
  std::function<void(ec)> dial_failed;
  std::function<void(const std::string& route, unsigned code, double seconds)> http_served;
};

} // namespace waggle::net
