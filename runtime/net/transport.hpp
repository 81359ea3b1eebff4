#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/peer_claims.hpp"

namespace waggle::net {

/// What travels: a protobuf header (runtime/wire) and raw bytes behind it.
struct frame {
  std::string header;
  payload body; // empty: a control frame, which overtakes bulk frames waiting to be sent
};

/// Called on the transport's thread (the I/O thread; the simulator's only thread). Must not block.
struct link_events {
  /// May be empty. Where the body that follows `header` is to be read to, `bytes` of it; null: to
  /// memory of the transport's. on_frame (or on_close) follows, and the frame's body lies there;
  /// frames without a body may come before it.
  std::function<std::shared_ptr<std::byte>(const std::string& header, std::size_t bytes)>
    body_memory;
  std::function<void(frame)> on_frame;
  std::function<void(failure)> on_close; // exactly once, last, also after close()
  /// May be empty, which is a no. Whether the body that follows `header` may be handed out where
  /// the peer (one on this host) has it, so that it `sender_can_write`. Else it is copied first, to
  /// where body_memory says.
  std::function<bool(const std::string& header, std::size_t bytes)> zero_copy_ok;
};

/// An authenticated connection with one peer. Every member is thread-safe.
class link {
public:
  virtual ~link() = default;

  /// Who is at the other end: proved by the handshake. `addresses` is what the peer announced.
  [[nodiscard]] virtual const peer_record& remote() const = 0;
  /// What the peer says of itself beyond that.
  [[nodiscard]] virtual peer_claims claims() const { return {}; }
  /// True if we dialled.
  [[nodiscard]] virtual bool outbound() const = 0;

  /// Begins to deliver frames. Called once.
  virtual void start(link_events events) = 0;

  /// Queues `f`. False: closed, or over the queue's limit; the frame is gone.
  /// Bulk frames wait for the peer's window (bytes of body it is ready to hold), so that memory on
  /// both sides is bounded; the payload is written from where it lies and must not change.
  virtual bool send(frame f) = 0;

  /// Returns `bytes` of body to the peer's window: the frames that held them were dealt with.
  virtual void grant(std::size_t bytes) = 0;

  /// Grows whenever bytes came, also of a frame that is not whole yet: a sign of life. A link whose
  /// frames come in one piece may leave it be.
  [[nodiscard]] virtual std::uint64_t reads() const { return 0; }

  /// Nothing waits here to be sent, and no body is half received. Of what was sent, some may still
  /// be under way.
  [[nodiscard]] virtual bool idle() const = 0;

  /// Sends what the control queue holds, if it can at once, then closes. on_close gets `why`. Of
  /// ec::duplicate_identity the peer is told, with the detail: its operator has to know.
  virtual void close(failure why) = 0;
};

using on_link = std::function<void(std::shared_ptr<link>)>;
using on_dialled = std::function<void(result<std::shared_ptr<link>>)>;

/// Seam: how a peer reaches others. Both implementations (TCP, simulated) run the same frames.
class transport {
public:
  virtual ~transport() = default;

  /// Accepts links from now on. The result is the address that was bound (port 0 picks one).
  /// Fails with ec::bad_config and a sentence for the operator (port taken, no such address).
  virtual result<endpoint> listen(const endpoint& where, on_link accept) = 0;

  /// For a peer that accepts no links: answers HTTP at `where`, and nothing else. The result is the
  /// address that was bound. Fails as `listen` does. Not beside `listen`.
  virtual result<endpoint> serve_http(const endpoint& where) = 0;

  /// Connects and proves both identities within `timeout`, then calls `done` once.
  /// `expected`: zero accepts whoever answers. Fails with ec::unreachable, timeout, wrong_run,
  /// wrong_version, bad_signature, duplicate_identity, agreement_mismatch, malformed, overloaded.
  virtual void dial(const endpoint& where, const peer_id& expected, milliseconds timeout,
                    on_dialled done) = 0;

  /// What we announce in handshakes from now on. Empty for a client.
  virtual void announce(peer_record self) = 0;

  /// Closes the listener and all links. No callback runs after it returned.
  virtual void stop() = 0;
};

} // namespace waggle::net
