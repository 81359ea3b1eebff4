#pragma once

// Internal to runtime/net: one TCP connection after the HTTP upgrade.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/net/buffer_pool.hpp"
#include "runtime/net/framing.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/net/local_path.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/transport.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

struct session_limits {
  std::size_t window_bytes = 32_MiB;        // bulk bodies in flight each way
  std::size_t control_queue_bytes = 16_MiB; // more: send() says no
  std::size_t bulk_queue_frames = 65'536;
  milliseconds handshake_timeout{5'000};
  /// Smaller bodies are copied faster than referred to. Measured with tests/bench/allreduce_driver:
  /// bodies of 64 KiB gain nothing, of 128 KiB a fifth.
  std::size_t shared_bytes_min = 128_KiB;
};
static_assert(
  32_MiB / 4 * 3 >= wire::body_bytes_max,
  "the largest body must fit into a window of which up to a quarter is not returned yet");

/// Frames in two lanes over one socket. To a peer on this host, bodies go through shared memory
/// beside it (local_path.hpp), if both want that. `send`, `grant`, `close` and the constructor may
/// be called from any thread; everything else runs on the io_context's only thread.
///
/// handshaking → open → closed: `run` ends the first with `on_ready` (once, also on failure).
class tcp_session final : public link, public std::enable_shared_from_this<tcp_session> {
public:
  using ready = std::function<void(result<std::shared_ptr<tcp_session>>)>;

  /// `context` is where the socket lives: a link may outlive the transport that made it.
  tcp_session(std::shared_ptr<asio::io_context> context, tcp::socket socket, std::string early,
              session_limits limits, std::shared_ptr<const net_events> events,
              std::shared_ptr<buffer_pool> pool, std::shared_ptr<local_host> host);

  /// Shakes hands, then reports. I/O thread.
  void run(handshake::setup setup, ready on_ready);
  /// Stops at once, whatever state it is in. I/O thread.
  void abandon(failure why) { fail(std::move(why)); }

  [[nodiscard]] const peer_record& remote() const override { return remote_; }
  [[nodiscard]] bool outbound() const override { return outbound_; }
  void start(link_events events) override;
  bool send(frame f) override;
  void grant(std::size_t bytes) override;
  void close(failure why) override;

private:
  struct outgoing {
    std::array<std::byte, frame_prefix::size> prefix{};
    frame content;
    std::size_t lent = 0; // bytes of a body that was referred to, not in `content`

    [[nodiscard]] bool bulk() const { return lent > 0 || !content.body.empty(); }
  };

  void read_more();
  void parse();
  /// True if the whole body was here and was delivered; false if it is read first, or the link
  /// failed.
  bool read_body(frame_prefix prefix, std::string header);
  /// `wire_bytes`: of the body, what came over the socket.
  void deliver(frame_prefix prefix, std::string header, payload body, std::size_t wire_bytes);
  void on_reference(std::string header);
  void on_offer(std::string_view offer);
  void open_path(unique_fd socket);
  void refer(outgoing& out);
  void return_borrowed();
  void on_handshake(std::string_view bytes);
  void enqueue(frame_kind kind, frame f);
  void drain_inbox();
  void write_more();
  void fail(failure why);
  void finish_handshake(result<std::shared_ptr<tcp_session>> outcome);

  std::shared_ptr<asio::io_context> context_; // first: outlives what uses it
  tcp::socket socket_;
  asio::steady_timer deadline_;
  session_limits limits_;
  std::shared_ptr<const net_events> events_;
  std::shared_ptr<buffer_pool> pool_;
  std::shared_ptr<local_host> host_; // null: no shared memory
  bool outbound_ = false;
  peer_record remote_;

  std::optional<handshake> handshake_;
  ready on_ready_;
  link_events handlers_;
  bool started_ = false;
  std::optional<failure> closed_why_; // closed before start(): told then

  std::shared_ptr<local_path> path_; // null: not to this peer, or not yet
  std::string offered_;              // the nonce by which the peer may come; empty: none is out

  std::vector<std::byte> in_; // bytes read but not parsed: [in_begin_, in_end_)
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  bool reading_ = false;

  std::deque<outgoing> control_; // I/O thread only
  std::deque<outgoing> bulk_;
  std::vector<outgoing> writing_;
  bool close_after_write_ = false;
  failure close_reason_;
  std::size_t send_window_;             // what the peer still takes
  std::size_t receive_outstanding_ = 0; // delivered, not granted yet
  std::size_t ungranted_ = 0;           // granted by the reader, not told to the peer yet

  std::mutex inbox_mutex_;
  std::vector<frame> inbox_;  // guarded by inbox_mutex_
  bool inbox_posted_ = false; // guarded by inbox_mutex_
  std::atomic<std::size_t> control_bytes_{0};
  std::atomic<std::size_t> bulk_frames_{0};
  std::atomic<bool> closed_{false};
};

/// The failure that an Asio error means.
failure failure_of(const error_code& error);

} // namespace waggle::net
