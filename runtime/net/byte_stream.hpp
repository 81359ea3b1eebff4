#pragma once

// Internal to runtime/net: the bytes of one connection, plain or encrypted.

#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/net/tls_channel.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

/// An AsyncStream. At most one read and one write are under way. I/O thread only.
class byte_stream : public std::enable_shared_from_this<byte_stream> {
public:
  using on_read = std::function<void(const error_code&, std::size_t bytes)>;
  using on_written = std::function<void(const error_code&)>;
  using executor_type = tcp::socket::executor_type;

  explicit byte_stream(tcp::socket socket, std::unique_ptr<tls_channel> tls = nullptr)
    : socket_(std::move(socket)), tls_(std::move(tls)), deadline_(socket_.get_executor()),
      small_packets_(tls_ ? 8 : 0) {}

  /// From now on, all is encrypted. What the channel has to send goes first.
  void encrypt(std::unique_ptr<tls_channel> with) { tls_ = std::move(with); }
  /// For whoever takes the socket, too. What the channel has to send is not sent.
  std::unique_ptr<tls_channel> release_tls() { return std::move(tls_); }
  /// The handshake of the channel, until it may read and write; with at most so many bytes of the
  /// other end.
  void begin(on_written done, std::size_t most = std::numeric_limits<std::size_t>::max());
  /// Reads into the beginning of `room`, which is not empty: at least one byte.
  void read(std::span<std::byte> room, on_read done);
  /// Writes all of them, one after another. What they point to lives until `done`.
  void write(std::vector<asio::const_buffer> all, on_written done);
  executor_type get_executor() { return socket_.get_executor(); }
  /// Reads into the first of several buffers.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& to, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
      [this, &to](auto handler) {
        asio::mutable_buffer first = *asio::buffer_sequence_begin(to);
        read({static_cast<std::byte*>(first.data()), first.size()},
             [kept = std::make_shared<decltype(handler)>(std::move(handler))](
               const error_code& error, std::size_t bytes) { (*kept)(error, bytes); });
      },
      token);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
      [this, &from](auto handler) {
        write({asio::buffer_sequence_begin(from), asio::buffer_sequence_end(from)},
              [kept = std::make_shared<decltype(handler)>(std::move(handler)),
               all = asio::buffer_size(from)](const error_code& error) {
                (*kept)(error, error ? 0 : all);
              });
      },
      token);
  }
  /// Ends what is sent, after saying so to an end that speaks TLS.
  void finish(on_written done);
  /// Whether the other end has left. What it sends over TLS meanwhile is dropped. Only between two
  /// operations.
  [[nodiscard]] bool is_over();
  /// What is under way then fails with ec::timeout: the socket is closed.
  void expires_after(std::chrono::steady_clock::duration time);
  void expires_never() { deadline_.expires_at(asio::steady_timer::time_point::max()); }

  [[nodiscard]] const tcp::socket& socket() const { return socket_; }
  [[nodiscard]] tcp::socket& socket() { return socket_; }
  /// Null: plain.
  [[nodiscard]] const tls_channel* tls() const { return tls_.get(); }
  /// Why the last operation failed.
  [[nodiscard]] failure why(const error_code& error) const;
  /// The same if it was the channel, or the time.
  [[nodiscard]] const std::optional<failure>& trouble() const { return trouble_; }

private:
  /// The encrypted bytes for about `wanted` bytes that have arrived, until the next call of any
  /// stream. Empty: none, or an error.
  byte_span receive(std::size_t wanted, error_code& error);
  void read_more(std::span<std::byte> room, on_read done);
  byte_span next_piece(std::size_t room);
  void write_more();
  /// `sent`: of sending_.
  void send_on(std::size_t sent);
  void fail(failure why, error_code& error);

  tcp::socket socket_;
  std::unique_ptr<tls_channel> tls_;
  asio::steady_timer deadline_;
  std::optional<failure> trouble_;

  std::vector<asio::const_buffer> unwritten_;
  on_written written_;
  std::vector<std::byte> sending_; // encrypted; not empty: a write is under way
  /// The next packets are small: the handshake of a link passes where large ones are lost, so that
  /// it opens and is found to be narrow.
  unsigned small_packets_;
};

failure failure_of(const error_code& error);

/// Whether a connection leaves this machine: both ends are not on loopback.
bool leaves_machine(const tcp::socket& socket);

} // namespace waggle::net
