#pragma once

#include <string_view>

#include "runtime/core/error.hpp"

namespace waggle::net {

/// The reason that both processes get if they use one identity at the same time.
constexpr std::string_view identity_in_use =
  "another process uses this identity: give each its own data folder";

/// The reason that a peer of another run gets. It names neither run.
constexpr std::string_view another_run =
  "this peer belongs to another run: the run's name must be the same on all peers";
/// How the reason begins if the server at an address answers no peers (ec::wrong_version).
constexpr std::string_view not_a_peer = "the server there is not a waggle peer";
/// Why listening fails at an address that is another machine's.
constexpr std::string_view no_such_address =
  "this machine has no such address: `ip addr` lists those that it has, and 0.0.0.0 is all";
/// The reason that a peer gets if there is no room for its link.
constexpr std::string_view no_room = "this peer has as many links as it accepts";

/// Whether a link with a peer of the same run was refused because of the options or the identity
/// that one of the two was started with. (A peer that dials itself also fails with
/// ec::duplicate_identity; that need not be reported.)
inline bool started_wrongly(const failure& why) {
  return why.code == ec::agreement_mismatch
         || (why.code == ec::duplicate_identity && why.detail.ends_with(identity_in_use));
}

/// Whether a peer is sent this reason when we end its link: its operator has to act, or it has to
/// try another peer.
inline bool told_to_peer(ec why) {
  return why == ec::duplicate_identity || why == ec::overloaded || why == ec::bad_signature;
}

} // namespace waggle::net
