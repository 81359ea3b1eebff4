#pragma once

// Internal to runtime/net: one TCP connection after the HTTP upgrade.

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
#include "runtime/net/frame_reader.hpp"
#include "runtime/net/handshake.hpp"
#include "runtime/net/local_path.hpp"
#include "runtime/net/net_events.hpp"
#include "runtime/net/socket_tuning.hpp"
#include "runtime/net/transport.hpp"
#include "runtime/net/write_queue.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

struct session_limits {
  std::size_t window_bytes = 32_MiB; // bulk bodies in flight each way
  milliseconds handshake_timeout{5'000};
  /// Sending smaller bodies over TCP is faster than by reference. Measured with
  /// tests/bench/allreduce_driver: bodies of 64 KiB gain nothing, of 128 KiB a fifth.
  std::size_t shared_bytes_min = 128_KiB;
};
static_assert(
  32_MiB / 4 * 3 >= frame_body_bytes_max,
  "the largest body must fit into the window while up to a quarter of it is not granted yet");

/// Frames in two lanes over one socket. Bodies to a peer on this host go through shared memory
/// (local_path.hpp), if both sides want that. `send`, `grant`, `close` and the constructor may be
/// called from any thread; everything else runs on the io_context's only thread.
///
/// States: handshaking → open → closed. `run` leaves the first with `on_ready` (called once, also
/// on failure).
class tcp_session final : public link, public std::enable_shared_from_this<tcp_session> {
public:
  using ready = std::function<void(result<std::shared_ptr<tcp_session>>)>;

  /// `context` is the socket's; it is shared because a link may outlive its transport.
  /// `tuning`: for links to other machines; none: a link within this host.
  tcp_session(std::shared_ptr<asio::io_context> context, tcp::socket socket, std::string early,
              session_limits limits, std::optional<socket_tuning> tuning,
              std::shared_ptr<const net_events> events, std::shared_ptr<buffer_pool> pool,
              std::shared_ptr<local_host> host);

  /// Performs the handshake, then calls `on_ready`. I/O thread.
  void run(handshake::setup setup, ready on_ready);
  /// Stops at once, in any state. I/O thread.
  void abandon(failure why) { fail(std::move(why)); }
  [[nodiscard]] bool ended() const { return closed_; }

  [[nodiscard]] const peer_record& remote() const override { return remote_; }
  [[nodiscard]] peer_claims claims() const override { return claims_; }
  [[nodiscard]] bool outbound() const override { return outbound_; }
  void start(link_events events) override;
  bool send(frame f) override;
  void grant(std::size_t bytes) override;
  void hold(bool on) override;
  [[nodiscard]] std::string host() const override { return remote_host_; }
  [[nodiscard]] std::uint64_t reads() const override { return reads_.load(); }
  [[nodiscard]] std::uint64_t body_bytes_written() const override {
    return queue_.body_bytes_written();
  }
  [[nodiscard]] std::size_t unsent_bytes() const override { return queue_.control_memory(); }
  [[nodiscard]] std::size_t unsent_background_bytes() const override {
    return queue_.background_bytes();
  }
  [[nodiscard]] link_facts facts() const override;
  [[nodiscard]] std::shared_ptr<const neighbourhood> neighbour() const override {
    return neighbour_;
  }
  [[nodiscard]] bool idle() const override { return queue_.empty() && !amid_body_.load(); }
  void close(failure why) override;

private:
  void read_more();
  /// Delivers what was read; after the handshake only once the owner has called `start`.
  void deliver_all();
  std::shared_ptr<std::byte> memory_for(const std::string& header, std::size_t bytes);
  void count(bool outbound, bool data, std::size_t bytes);
  void count_shared(bool outbound, std::size_t bytes);
  void measure_round_trip();
  void deliver(arrival seen);
  void note_overhead(const arrival& seen);
  void report_overhead();
  void on_reference(std::string header);
  void on_offer(std::string_view offer);
  void open_path(unique_fd socket);
  void refer(outgoing& out);
  void return_borrowed();
  void on_handshake(std::string_view bytes);
  void enqueue(frame_kind kind, std::string header);
  void write_more();
  void on_written();
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
  peer_id self_;
  peer_record remote_;
  std::string remote_host_;
  peer_claims claims_;

  std::optional<handshake> handshake_;
  ready on_ready_;
  link_events handlers_;
  std::size_t overhead_frames_ = 0; // delivered and not reported
  std::size_t overhead_bytes_ = 0;  // of their headers
  bool started_ = false;
  std::optional<failure> closed_why_; // closed before start(), which then reports it

  std::shared_ptr<local_path> path_; // null: not with this peer, or not yet
  std::string offered_;              // the answer to our offer; empty: no offer is open

  frame_reader reader_;
  std::shared_ptr<void> header_room_; // see link_events::long_header
  std::atomic<std::uint64_t> reads_{0};
  std::atomic<bool> amid_body_{false};
  std::atomic<bool> held_{false};
  bool reading_ = false; // a read into the reader's room is pending

  write_queue queue_;
  std::vector<outgoing> writing_;
  steady_time writing_since_;
  std::optional<socket_tuning> tuning_;
  bool close_after_write_ = false;
  failure close_reason_;

  struct { // link_facts, for other threads
    std::atomic<std::int64_t> round_trip_us{0};
    std::atomic<std::uint64_t> bytes_in{0};
    std::atomic<std::uint64_t> bytes_out{0};
    std::atomic<std::uint64_t> bytes_shared{0};
    std::atomic<bool> shares_memory{false};
  } facts_;
  const std::shared_ptr<neighbourhood> neighbour_ = std::make_shared<neighbourhood>();
  std::uint32_t until_measured_ = 0; // reads until the round trip is looked up again

  std::atomic<bool> closed_{false};
};

/// Maps an Asio error to a failure.
failure failure_of(const error_code& error);

} // namespace waggle::net
