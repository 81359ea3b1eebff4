#pragma once

// Internal to runtime/net: bodies that pass between the two ends of one link through shared memory.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/net/local_path.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/receive_window.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/net/write_queue.hpp"

namespace waggle::net {

/// Whether the two ends of a link share memory, and the bodies that they lend each other. The
/// acceptor offers it once, after the handshake. I/O thread only, except where noted.
///
/// | state   | left by                                                              |
/// |---------|----------------------------------------------------------------------|
/// | unasked | begin: both are on one host and want it → waiting; else → off        |
/// | waiting | the dialler has connected → open; end → off. A dialler that cannot   |
/// |         | connect → off; the acceptor is not told, and goes on waiting         |
/// | open    | end → off. Bodies for which there is no memory are sent over TCP.    |
class link_memory {
public:
  /// @param host null: no shared memory.
  link_memory(std::shared_ptr<local_host> host, std::shared_ptr<const net_events> events)
    : host_(std::move(host)), events_(std::move(events)) {}

  struct setup {
    link_ends ends;
    bool dialler = false;
    std::weak_ptr<const void> owner; // of this object
    /// `write_releases` has something to write. Any thread; also after the end.
    std::function<void()> returned;
  };
  /// The handshake is done. Returns the offer to send; empty: none.
  [[nodiscard]] std::string begin(bool same_host, setup with);
  /// The peer offers to share memory. Fails with ec::protocol_violation.
  [[nodiscard]] status on_offer(std::string_view offer);
  /// Ids of bodies of ours that the peer no longer reads. Fails with ec::protocol_violation.
  [[nodiscard]] status on_release(std::string_view ids);
  /// Removes the reference from `header`, and returns the body that it refers to, which the peer
  /// can still change. It takes its room in `window`. Fails with ec::protocol_violation.
  [[nodiscard]] result<payload> resolve(std::string& header, receive_window& window);
  /// Replaces a body with a reference to it, if the peer can resolve it.
  void refer(outgoing& out);
  /// Tells the peer which of its memory is no longer read.
  void write_releases(write_queue& queue);
  void end();

  /// These: any thread.
  [[nodiscard]] bool opened() const { return opened_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::shared_ptr<const neighbourhood> neighbour() const { return neighbour_; }

private:
  void open(unique_fd socket);
  void count(bool outbound, std::size_t bytes);

  std::shared_ptr<local_host> host_; // null: off
  const std::shared_ptr<const net_events> events_;
  setup with_;
  std::string offered_;              // the answer to our offer; empty: no offer is open
  std::shared_ptr<local_path> path_; // null: not open
  const std::shared_ptr<neighbourhood> neighbour_ = std::make_shared<neighbourhood>();
  std::atomic<bool> opened_{false};
  std::atomic<std::uint64_t> bytes_{0}; // both ways
};

} // namespace waggle::net
