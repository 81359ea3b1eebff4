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
  /// Who has another one is refused (ec::agreement_mismatch). Null: links with everybody.
  std::shared_ptr<const run_agreement> agreement;
  http_handler http; // answers what is not an upgrade; empty: 404
  net_events events;
  std::uint64_t seed = 0; // of the handshakes' nonces; 0: from the operating system

  /// Bytes of bulk bodies that may be in flight to or from one peer. Bounds the memory that one
  /// peer can make us hold. At least 4/3 of wire::body_bytes_max.
  std::size_t window_bytes = 32_MiB;
  /// Large bodies to peers of the same user on this host go through memory that both map. Costs as
  /// much memory as is in flight to them, once; no path to a peer means TCP, no more.
  bool shared_memory = true;
  /// Where bodies are copied to for such peers, or lie from the beginning (arena_resource). Null:
  /// one of our own.
  std::shared_ptr<shared_arena> arena;
  /// Congestion control of links to other machines. "auto": cubic, and bbr from when a link is
  /// found to lose packets without being full (loss_watch); "": the system's; else a name that the
  /// kernel knows. What the kernel refuses stays as it was: it gives bbr to a process without
  /// privileges only if net.ipv4.tcp_allowed_congestion_control names it.
  std::string congestion = "auto";
  /// Treats links over loopback like those to other machines. For tests.
  bool loopback_is_far = false;
  /// A client that has not sent its whole request by then is cut off (slow loris), an idle
  /// keep-alive connection, too.
  milliseconds http_timeout{10'000};
  milliseconds handshake_timeout{5'000};
  /// Finds the addresses of names that are dialled; empty: the system does.
  host_lookup lookup;
  /// Accepted connections, HTTP and peers together. Further ones are closed at once.
  std::size_t connections_max = 512;
};

/// Peers over TCP: one port speaks HTTP/1.1 and, after `Upgrade: waggle/1`, frames. Owns one
/// thread.
std::shared_ptr<transport> make_tcp_transport(tcp_transport_config config);

} // namespace waggle::net
