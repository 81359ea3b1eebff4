#pragma once

// Internal to runtime/net: one connection between peers, after the HTTP upgrade or the
// beginning of TLS.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/core/buffer_pool.hpp"
#include "runtime/net/byte_stream.hpp"
#include "runtime/net/frame_reader.hpp"
#include "runtime/net/link_memory.hpp"
#include "runtime/net/link_proof.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/socket_tuning.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/net/write_queue.hpp"

namespace waggle::net {

/// Frames in two lanes over one socket. Bodies to a peer on this host go through shared memory
/// (link_memory.hpp), if both sides want that. `send`, `grant`, `close` and the constructor may be
/// called from any thread; everything else runs on the io_context's only thread.
///
/// States: handshaking → open → closed. `run` leaves the first with `on_ready` (called once, also
/// on failure).
class tcp_session final : public link, public std::enable_shared_from_this<tcp_session> {
public:
  /// `context` is the socket's; it is shared because a link may outlive its transport.
  /// `window_bytes`: bodies in flight each way. `tuning`: for links to other machines; none: a link
  /// within this host.
  tcp_session(std::shared_ptr<asio::io_context> context, std::shared_ptr<byte_stream> stream,
              std::string early, std::size_t window_bytes, std::optional<socket_tuning> tuning,
              std::shared_ptr<const net_events> events, std::shared_ptr<buffer_pool> pool,
              std::shared_ptr<local_host> host);

  void run(handshake::setup setup, milliseconds timeout, link_proof::ready on_ready);
  /// Stops at once, in any state. I/O thread.
  void abandon(failure why) { fail(std::move(why)); }
  [[nodiscard]] bool ended() const { return closed_; }

  [[nodiscard]] const peer_record& remote() const override { return proof_.remote(); }
  [[nodiscard]] peer_claims claims() const override { return proof_.claims(); }
  [[nodiscard]] bool outbound() const override { return proof_.outbound(); }
  void start(std::shared_ptr<link_listener> listener) override;
  bool send(frame f) override;
  void grant(std::size_t bytes) override;
  void hold(bool on) override;
  [[nodiscard]] std::string host() const override { return proof_.host(); }
  [[nodiscard]] std::optional<socket_ends> ends() const override { return proof_.ends(); }
  [[nodiscard]] link_facts facts() const override;
  [[nodiscard]] std::shared_ptr<const neighbourhood> neighbour() const override {
    return memory_.neighbour();
  }
  [[nodiscard]] bool idle() const override { return queue_.empty() && !amid_body_.load(); }
  void close(failure why) override;

private:
  void read_more();
  /// Delivers what was read; after the handshake only once the owner has called `start`.
  void deliver_all();
  std::shared_ptr<std::byte> memory_for(const std::string& header, std::size_t bytes);
  void count(bool outbound, bool data, std::size_t bytes);
  void measure_round_trip();
  void deliver(arrival seen);
  void note_overhead(const arrival& seen);
  void report_overhead();
  void on_reference(std::string header);
  void check(const status& outcome);
  void on_handshake(std::string_view bytes);
  void enqueue(frame_kind kind, std::string header);
  void write_more();
  void on_written();
  void fail(failure why);

  std::shared_ptr<asio::io_context> context_; // first: outlives what uses it
  std::shared_ptr<byte_stream> stream_;
  tcp::socket& socket_; // that of stream_
  asio::steady_timer deadline_;
  std::shared_ptr<const net_events> events_;
  std::shared_ptr<buffer_pool> pool_;
  link_proof proof_;
  std::shared_ptr<link_listener> listener_; // null before start(), and after the end
  struct {
    std::size_t frames = 0, bytes = 0; // bytes: of their headers
  } overhead_;                         // delivered and not reported
  std::optional<failure> closed_why_;  // closed before start(), which then reports it

  link_memory memory_;
  frame_reader reader_;
  std::shared_ptr<void> header_room_; // see link_listener::long_header
  std::atomic<std::uint64_t> reads_{0};
  std::atomic<bool> amid_body_{false};
  std::atomic<bool> held_{false};
  bool reading_ = false; // a read into the reader's room is pending

  write_queue queue_;
  std::vector<outgoing> writing_;
  steady_time writing_since_;
  std::optional<socket_tuning> tuning_;
  std::optional<failure> closing_; // the reason; ends once all control frames are written

  struct { // link_facts, for other threads
    std::atomic<std::int64_t> round_trip_us{0};
    std::atomic<std::uint64_t> bytes_in{0};
    std::atomic<std::uint64_t> bytes_out{0};
  } facts_;
  std::uint32_t until_measured_ = 0; // reads until the round trip is looked up again

  std::atomic<bool> closed_{false};
};

} // namespace waggle::net
