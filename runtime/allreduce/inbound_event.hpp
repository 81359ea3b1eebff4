#pragma once

#include <memory>

#include "runtime/core/bytes.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/wire/messages.hpp"

namespace waggle {

/// A peer's event, for the service that it concerns. Whoever handled (or dropped) one with a body
/// calls `release()`: it returns the bytes to the peer's send window.
struct inbound_event {
  peer_record from;
  wire::event what;
  payload body;
  std::shared_ptr<net::link> via; // null in unit tests

  void release() const {
    if (via && body.size > 0)
      via->grant(body.size);
  }
};

} // namespace waggle
