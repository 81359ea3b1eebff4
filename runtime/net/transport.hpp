#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::net {

/// What is sent: a protobuf header (runtime/wire), followed by raw bytes.
struct frame {
  std::string header;
  payload body; // empty: a control frame, which overtakes bulk frames waiting to be sent
  /// A body that no round waits for (a piece of a state). It gets what other bodies leave of the
  /// link, and at least half.
  bool background = false;
  /// True from when on nobody needs the body: it is not sent if it still waits. Null: never.
  std::shared_ptr<const std::atomic<bool>> obsolete{};
};

/// Takes what a link delivers. Called on the transport's thread (the I/O thread; the simulator's
/// only thread). Must not block.
class link_listener {
public:
  virtual ~link_listener() = default;

  /// Returns where to read the body that follows `header`, `bytes` bytes; null: the transport
  /// allocates memory. on_frame (or on_close) follows, and the frame's body lies in that memory.
  /// Frames without a body may be delivered before it.
  virtual std::shared_ptr<std::byte> body_memory(const std::string& /*header*/,
                                                 std::size_t /*bytes*/) {
    return nullptr;
  }
  virtual void on_frame(frame f) = 0;
  virtual void on_close(failure why) = 0; // exactly once, last, also after close()
  /// Whether the body that follows `header` may be delivered in memory shared with the peer (on
  /// this host), with `sender_can_write` set. Otherwise it is first copied into the memory that
  /// body_memory returns.
  virtual bool zero_copy_ok(const std::string& /*header*/, std::size_t /*bytes*/) { return false; }
  /// A header of `bytes` bytes arrives, for which the link needs more than its usual buffer. The
  /// result is released when the header has arrived. May hold the link: then the rest is read
  /// later.
  virtual std::shared_ptr<void> long_header(std::size_t /*bytes*/) { return nullptr; }
  /// So many frames that are not messages were read: window updates, pieces of bodies, returned
  /// memory. They take the I/O thread's time. Called once for all such frames of a read;
  /// `header_bytes` are those of all of them. May hold the link. Simulated links have none.
  virtual void on_overhead(std::size_t /*frames*/, std::size_t /*header_bytes*/) {}
};

/// What a link is and what it has carried so far.
struct link_facts {
  /// The shortest round trip of the last minutes, as the kernel measures it; zero: not known.
  std::chrono::microseconds round_trip{0};
  std::uint64_t bytes_in = 0; // on the wire
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_shared = 0; // through memory shared with a peer on this host, both ways
  bool shares_memory = false;
  bool encrypted = false;
  /// Grows whenever bytes arrive, also those of an incomplete frame: a sign of life. A link whose
  /// frames arrive in one piece need not count them.
  std::uint64_t reads = 0;
  /// Body bytes that were passed to the network so far. Grows while the peer takes what we send,
  /// and stops when it does not; always 0 where bodies need no time.
  std::uint64_t body_bytes_written = 0;
  /// An estimate of the memory that queued frames without bodies take: what was passed to `send`
  /// and the network has not taken yet.
  std::size_t unsent_bytes = 0;
  /// The bytes of queued background bodies that the network has not begun to take.
  std::size_t unsent_background_bytes = 0;
};

/// Two processes of one user on one host that share memory. Thread-safe.
struct neighbourhood {
  /// The peer has opened its end of the shared memory, and is a process of our user in our process
  /// namespace, as the kernel says.
  std::atomic<bool> seen{false};
  /// The peer has seen the same of us.
  std::atomic<bool> mutual{false};
};

/// The sockets of a link, as this end sees them: another peer may see them elsewhere.
struct socket_ends {
  endpoint here;
  endpoint there;
};

/// An authenticated connection with one peer. Every member is thread-safe.
class link {
public:
  virtual ~link() = default;

  /// The peer at the other end, proved by the handshake. `addresses` are those that it announced.
  [[nodiscard]] virtual const peer_record& remote() const = 0;
  [[nodiscard]] virtual peer_claims claims() const { return {}; }
  [[nodiscard]] virtual bool outbound() const = 0;

  /// Begins to deliver frames. Called once.
  virtual void start(std::shared_ptr<link_listener> listener) = 0;

  /// Queues `f`. False: closed, or over the queue's limit; the frame is dropped.
  /// Bulk frames wait for the peer's window (body bytes that it is ready to hold), so that memory
  /// on both sides is bounded. The payload is written without a copy and must not change.
  virtual bool send(frame f) = 0;

  /// Returns `bytes` body bytes to the peer's window: the frames that held them were processed.
  virtual void grant(std::size_t bytes) = 0;

  /// While `on`, no frames are delivered: what the peer sends waits at its end (flow control of
  /// TCP). A frame that is being delivered is completed. May have no effect.
  virtual void hold(bool on) { (void)on; }

  /// The address of the host at the other end, without port; empty: not known.
  [[nodiscard]] virtual std::string host() const { return {}; }

  /// Nothing: not known, or a simulated link.
  [[nodiscard]] virtual std::optional<socket_ends> ends() const { return {}; }

  /// Any thread. A link that measures nothing need not override it.
  [[nodiscard]] virtual link_facts facts() const { return {}; }
  /// What this link has shown of the peer's process; it changes later. Null: simulated links.
  [[nodiscard]] virtual std::shared_ptr<const neighbourhood> neighbour() const { return nullptr; }

  /// Nothing is queued for sending, and no body is partly received. Frames already sent may still
  /// be in flight.
  [[nodiscard]] virtual bool idle() const = 0;

  /// Sends the content of the control queue, if that is possible at once, then closes. on_close
  /// gets `why`. If its code is one that the peer is to know (told_to_peer), it is also sent to the
  /// peer, with its detail.
  virtual void close(failure why) = 0;
};

using on_link = std::function<void(std::shared_ptr<link>)>;
using on_dialled = std::function<void(result<std::shared_ptr<link>>)>;
using on_resolved = std::function<void(result<std::vector<endpoint>>)>;

struct dial_target {
  endpoint where; // over TCP a numeric address: names are resolved first
  /// What the operator gave, if `where` is one of its addresses. The request names its host, as
  /// servers expect that distinguish hosts by name.
  std::optional<endpoint> given;
  peer_id expected; // zero: any peer
  /// Both ends dial at the same time, because a router is before each (punching): this one from
  /// here, an end of a link of its own, and again until both meet or the time is over.
  std::optional<endpoint> from{};
  /// Of such a dial: the other end shows first who it is, and the link arrives as one that the peer
  /// dialled (transport::listen). This dial then ends with null.
  bool answers = false;
};

/// How a peer reaches others. Both implementations (TCP, simulated) exchange the same frames.
class transport {
public:
  virtual ~transport() = default;

  /// Accepts links from now on at each of `where`, at least one. `accept` may be empty, for a peer
  /// that accepts none: it only answers HTTP. The result is the addresses that were bound, in the
  /// same order (port 0 picks one). Fails with ec::bad_config and a sentence for the operator (port
  /// taken, no such address).
  virtual result<std::vector<endpoint>> listen(const std::vector<endpoint>& where,
                                               on_link accept) = 0;

  /// Finds the addresses that `given` stands for now: itself if it is numeric, else those of the
  /// name, at least one, in the order in which to try them. Calls `done` once, unless the transport
  /// is stopped. Fails with ec::unreachable, timeout, overloaded. A simulated network has no names.
  virtual void resolve(const endpoint& given, milliseconds timeout, on_resolved done) {
    (void)timeout;
    done(std::vector{given});
  }

  /// Connects and proves both identities within `timeout`, then calls `done` once. Fails with
  /// ec::unreachable, timeout, wrong_run, wrong_version, bad_signature, duplicate_identity,
  /// agreement_mismatch, clock_skew, malformed, overloaded.
  virtual void dial(const dial_target& to, milliseconds timeout, on_dialled done) = 0;

  /// What we announce in handshakes from now on. Empty for a client.
  virtual void announce(peer_record self) = 0;

  /// Closes the listener and all links. No callback runs after this returns.
  virtual void stop() = 0;
};

} // namespace waggle::net
