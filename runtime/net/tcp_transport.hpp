#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/core/random.hpp"
#include "runtime/crypto/identity.hpp"
#include "runtime/crypto/member_list.hpp"
#include "runtime/crypto/page_certificate.hpp"
#include "runtime/crypto/swarm_key.hpp"
#include "runtime/net/clock_offset.hpp"
#include "runtime/net/connection_slots.hpp"
#include "runtime/net/http.hpp"
#include "runtime/net/link_budget.hpp"
#include "runtime/net/name_resolver.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/shared_arena.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

struct tcp_transport_config {
  std::string run_id;
  std::optional<swarm_key> key;         // takes the place of run_id in handshakes
  std::shared_ptr<run_members> members; // null: whoever knows key or name belongs to the run
  std::shared_ptr<const identity> self;
  std::shared_ptr<const signature_verifier> verifier;
  peer_record record; // announced in handshakes
  /// A peer with a different agreement is refused (ec::agreement_mismatch). Null: no check.
  std::shared_ptr<const run_agreement> agreement;
  /// Peers whose clocks are too far from it are refused (ec::clock_skew). Null: no check.
  std::shared_ptr<const wall_clock> clock;
  clock_limits clocks{};
  /// Shown to clients of HTTPS. Null: one that is made anew.
  std::shared_ptr<const page_certificate> pages{};
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
  bool open_pages = false;
  /// Links are encrypted unless both ends are on loopback. False: none is, and peers that want it
  /// refuse.
  bool encrypts = true;
  /// Treats links over loopback like those to other machines. For tests.
  bool loopback_is_far = false;
  /// A client that has not sent its complete request within this time is disconnected (slow loris).
  /// So is an idle keep-alive connection.
  milliseconds http_timeout{10'000};
  bool looks = false; // peer_claims::looks
  milliseconds handshake_timeout{5'000};
  /// Resolves dialled host names; empty: the system's resolver.
  host_lookup lookup;
  /// Names by which the operator's browsers and scripts know this peer (http_hosts.hpp).
  std::set<std::string> http_hosts;
  /// HTTP connections. Prometheus, a few browsers and health checks need some each; peers need one
  /// for the moment until it is upgraded. Over the limit the oldest one is closed.
  connection_slots::limits http_connections{256, 128};
  /// Peers that dialled us and have not finished the handshake; the same rule.
  connection_slots::limits handshakes{128, 96};
  /// Time for the handshakes of one host, per second: 400. Over it, its connections are closed.
  work handshake_work{100'000};
  /// Links at once, and hosts that are remembered. A switchboard closes links long before that.
  std::size_t connections_max = 512;
};

/// Peers over TCP: one port speaks HTTP/1.1 and, after `Upgrade: waggle/1`, frames. Owns one
/// thread.
std::shared_ptr<transport> make_tcp_transport(tcp_transport_config config);

} // namespace waggle::net
