#pragma once

#include <memory>

#include "runtime/core/bytes.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// An event from a peer, for the service that it concerns. The code that handled (or dropped) an
/// event with a body calls `release()`, which returns the bytes to the peer's send window.
struct inbound_event {
  peer_record from;
  wire::event what;
  payload body;
  std::shared_ptr<net::link> via; // null in unit tests
  /// As long as a copy exists, the event counts as not processed (net::link_budget).
  std::shared_ptr<void> ticket{};
  std::size_t header_bytes = 0; // of the encoded message: an estimate of what `what` takes

  void release() const {
    if (via && body.size > 0)
      via->grant(body.size);
  }
};

} // namespace waggle
