#pragma once

// Internal to runtime/net: the bytes of one connection, plain or encrypted.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "runtime/net/tls_channel.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

/// At most one read and one write are under way. I/O thread only.
class byte_stream : public std::enable_shared_from_this<byte_stream> {
public:
  using on_read = std::function<void(const error_code&, std::size_t bytes)>;
  using on_written = std::function<void(const error_code&)>;

  /// `tls`: null for a plain connection.
  explicit byte_stream(tcp::socket socket, std::unique_ptr<tls_channel> tls = nullptr)
    : socket_(std::move(socket)), tls_(std::move(tls)) {}

  /// Of the dialler's channel: until it may read and write.
  void begin(on_written done);
  /// Reads into the beginning of `room`, which is not empty: at least one byte.
  void read(std::span<std::byte> room, on_read done);
  /// Writes all of them, one after another. What they point to lives until `done`.
  void write(std::vector<asio::const_buffer> all, on_written done);

  [[nodiscard]] const tcp::socket& socket() const { return socket_; }
  [[nodiscard]] tcp::socket& socket() { return socket_; }
  /// Null: plain.
  [[nodiscard]] const tls_channel* tls() const { return tls_.get(); }
  /// Why the last operation failed.
  [[nodiscard]] failure why(const error_code& error) const;

private:
  /// Takes encrypted bytes for about `wanted` bytes, if they have arrived. 0: none, or an error.
  std::size_t receive(std::size_t wanted, error_code& error);
  void read_more(std::span<std::byte> room, on_read done);
  byte_span next_piece(std::size_t room);
  void write_more();
  /// `sent`: of sending_.
  void send_on(std::size_t sent);
  void fail(failure why, error_code& error);

  tcp::socket socket_;
  std::unique_ptr<tls_channel> tls_;
  std::optional<failure> trouble_; // of the channel

  std::vector<asio::const_buffer> unwritten_;
  on_written written_;
  std::vector<std::byte> sending_; // encrypted; not empty: a write is under way
  /// The next packets are small: a handshake passes where large ones are lost, so that the link
  /// opens and is found to be narrow.
  unsigned small_packets_ = 8;
};

/// Maps an Asio error to a failure.
failure failure_of(const error_code& error);

/// Whether a connection leaves this machine: both ends are not on loopback.
bool leaves_machine(const tcp::socket& socket);

} // namespace waggle::net
