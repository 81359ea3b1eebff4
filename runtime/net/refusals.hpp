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
constexpr std::string_view another_key =
  "the two ends have different swarm keys: all peers of a run need copies of one file";
constexpr std::string_view key_here =
  "this peer has a swarm key, the other end has only a run's name: all peers of a run need the "
  "same --swarm-key FILE, or none";
constexpr std::string_view key_there =
  "this peer has only a run's name, the other end has a swarm key: all peers of a run need the "
  "same --swarm-key FILE, or none";
constexpr std::string_view members_here =
  "this peer was started with --members KEY, and the other end was not: all peers of a run need "
  "the same one, or none";
constexpr std::string_view members_there =
  "the other end was started with --members KEY, and this peer was not: all peers of a run need "
  "the same one, or none";
constexpr std::string_view another_authority =
  "the two ends have different --members KEY: two authorities are two runs";
/// The reason if the encrypted channel ends at somebody else than the peer.
constexpr std::string_view relayed =
  "somebody stands between the two peers: the certificate is not that of the peer that answers";
constexpr std::string_view not_encrypted =
  "this peer was started with --encrypt never, and the other end was not: links between machines "
  "are encrypted at both ends or at none";
constexpr std::string_view encrypted_here =
  "the other end was started with --encrypt never, and this peer was not: links between machines "
  "are encrypted at both ends or at none";
/// How the reason begins if the server at an address answers no peers (ec::wrong_version).
constexpr std::string_view not_a_peer = "the server there is not a waggle peer";
constexpr std::string_view no_such_address =
  "this machine has no such address: `ip addr` lists those that it has, and 0.0.0.0 is all";
constexpr std::string_view no_room = "this peer has as many links as it accepts";

/// Whether a link was refused because of the options, the key or the identity that one of the two
/// peers was started with. (A peer that dials itself also fails with
/// ec::duplicate_identity; that need not be reported.)
inline bool started_wrongly(const failure& why) {
  return why.code == ec::agreement_mismatch
         || (why.code == ec::wrong_run
             && (why.detail.find("swarm key") != std::string::npos
                 || why.detail.find("--members KEY") != std::string::npos))
         || (why.code == ec::bad_signature && why.detail.ends_with(relayed))
         || why.detail == not_encrypted || why.detail == encrypted_here
         || (why.code == ec::duplicate_identity && why.detail.ends_with(identity_in_use));
}

/// Whether a peer is sent this reason when we end its link: its operator has to act, it has to try
/// another peer, or it would take us for lost.
inline bool told_to_peer(ec why) {
  return why == ec::duplicate_identity || why == ec::overloaded || why == ec::bad_signature
         || why == ec::not_a_member || why == ec::shutting_down;
}

} // namespace waggle::net
