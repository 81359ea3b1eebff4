#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::net {

/// A function that need not be there: without one, a call does nothing.
template <class Signature>
struct hook;
template <class... Args>
struct hook<void(Args...)> : std::function<void(Args...)> {
  using std::function<void(Args...)>::function;
  using std::function<void(Args...)>::operator=;
  void operator()(Args... args) const {
    if (*this)
      std::function<void(Args...)>::operator()(std::forward<Args>(args)...);
  }
};

/// Events of the transport, for metrics and logs. Each is called on the I/O thread.
struct net_events {
  /// An inbound connection, request, handshake or frame was refused.
  hook<void(ec)> refused;
  /// Bytes on the wire. `data`: frames with a body; else control frames.
  hook<void(bool outbound, bool data, std::size_t bytes)> transferred;
  /// The same for links to other machines only, for all kinds of frames.
  hook<void(bool outbound, std::size_t bytes)> carried;
  /// Bytes of bodies that went to or came from a peer on this host through shared memory.
  hook<void(bool outbound, std::size_t bytes)> shared;
  /// We share memory with a peer on this host from now on (ec::none), or the reason why not.
  hook<void(ec)> shared_memory;
  /// A link with a peer of the run was refused: the options of the two differ
  /// (ec::agreement_mismatch), one is on no list of members, or both use the same identity.
  /// `where`: the dialled address, or the host that an inbound connection came from.
  hook<void(const endpoint& where, bool outbound, const failure& why)> disagreed;
  /// An address that the operator gave stands for these addresses now.
  hook<void(const endpoint& given, const std::vector<endpoint>& addresses)> resolved;
  /// A handshake showed how far the clock of a peer of the run is from ours, at least (above zero:
  /// it is ahead). Called before the link is opened or refused.
  hook<void(const peer_id&, swarm_clock::duration offset)> clock_compared;
  /// An open link with this host ended while its data was sent again and again, unanswered.
  hook<void(const std::string& host)> ended_stuck;
  /// Large packets to this host are found to be lost, or, with nothing, to none any more.
  hook<void(const std::optional<std::string>& host)> narrow_path;
  /// A link was opened with a peer that makes these claims.
  hook<void(const peer_claims&)> linked;
  hook<void(bool outbound)> opened;
  hook<void(bool outbound, ec why)> closed;
  hook<void(ec)> dial_failed;
  hook<void(const std::string& route, unsigned code, double seconds)> http_served;
};

} // namespace waggle::net
