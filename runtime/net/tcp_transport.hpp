#pragma once

#include <memory>
#include <string>

#include "runtime/core/random.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/net/http.hpp"
#include "runtime/net/name_resolver.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/shared_arena.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

struct tcp_transport_config {
  std::string run_id;
  std::shared_ptr<const identity> self;
  std::shared_ptr<const signature_verifier> verifier;
  peer_record record; // announced in handshakes
  /// A peer with a different agreement is refused (ec::agreement_mismatch). Null: no check.
  std::shared_ptr<const run_agreement> agreement;
  http_handler http; // answers requests other than the upgrade; empty: 404
  net_events events;
  std::uint64_t seed = 0; // of the handshakes' nonces; 0: from the operating system

  /// Bytes of bulk bodies that may be in flight to or from one peer. Bounds the memory that one
  /// peer can make us use. At least 4/3 of frame_body_bytes_max.
  std::size_t window_bytes = 32_MiB;
  /// Large bodies to peers of the same user on this host go through shared memory. Costs one copy
  /// of the bytes in flight to them. If memory cannot be shared with a peer, TCP is used.
  bool shared_memory = true;
  /// Where bodies are copied for such peers, or are allocated from the start (arena_resource).
  /// Null: the transport makes one.
  std::shared_ptr<shared_arena> arena;
  /// Congestion control of links to other machines. "auto": cubic, then bbr once a link is found to
  /// lose packets without being full (loss_watch); "": the system's default; else a name that the
  /// kernel knows. If the kernel refuses, the setting stays unchanged: an unprivileged process may
  /// use bbr only if net.ipv4.tcp_allowed_congestion_control lists it.
  std::string congestion = "auto";
  /// Treats links over loopback like those to other machines. For tests.
  bool loopback_is_far = false;
  /// A client that has not sent its complete request within this time is disconnected (slow loris).
  /// So is an idle keep-alive connection.
  milliseconds http_timeout{10'000};
  milliseconds handshake_timeout{5'000};
  /// Resolves dialled host names; empty: the system's resolver.
  host_lookup lookup;
  /// Accepted connections, HTTP and peers together. Further ones are closed at once.
  std::size_t connections_max = 512;
};

/// Peers over TCP: one port speaks HTTP/1.1 and, after `Upgrade: waggle/1`, frames. Owns one
/// thread.
std::shared_ptr<transport> make_tcp_transport(tcp_transport_config config);

} // namespace waggle::net
