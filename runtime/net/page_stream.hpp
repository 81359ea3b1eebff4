#pragma once

// Internal to runtime/net: a connection that carries HTTP, plain or encrypted, for Beast.

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/async_result.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include "runtime/net/tls_channel.hpp"

namespace waggle::net {

/// An AsyncStream. One read or one write is under way. Its timeouts are those of `tcp`. It outlives
/// what is under way.
class page_stream {
public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using on_done = std::function<void(boost::beast::error_code, std::size_t bytes)>;

  explicit page_stream(boost::beast::tcp_stream stream) : tcp(std::move(stream)) {}

  /// From now on, all is encrypted. The channel's `begin` has returned true; its output is sent
  /// before anything else.
  void encrypt(std::unique_ptr<tls_channel> with) { tls_ = std::move(with); }
  /// As the dialler of a channel: returns once all can be read and written.
  void dial(std::unique_ptr<tls_channel> with, on_done done);
  /// Null: plain.
  [[nodiscard]] const tls_channel* tls() const { return tls_.get(); }
  /// Why an operation failed, if the channel did.
  [[nodiscard]] const failure& why() const { return why_; }

  /// Ends what is sent, after telling so to a client that speaks TLS.
  void finish(on_done done);
  /// Whether the client has left. What it sends meanwhile is dropped. Only between two operations.
  bool is_over();

  executor_type get_executor() { return tcp.get_executor(); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& to, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::beast::error_code, std::size_t)>(
      [this, &to](auto handler) {
        if (!tls_)
          return tcp.async_read_some(to, std::move(handler));
        boost::asio::mutable_buffer first;
        for (boost::asio::mutable_buffer each : boost::beast::buffers_range_ref(to))
          if (first.size() == 0)
            first = each;
        read({static_cast<std::byte*>(first.data()), first.size()}, copyable(std::move(handler)));
      },
      token);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::beast::error_code, std::size_t)>(
      [this, &from](auto handler) {
        if (!tls_)
          return tcp.async_write_some(from, std::move(handler));
        std::vector<byte_span> pieces;
        std::size_t room = slice_bytes;
        for (boost::asio::const_buffer each : boost::beast::buffers_range_ref(from)) {
          pieces.push_back(
            {static_cast<const std::byte*>(each.data()), std::min(room, each.size())});
          room -= pieces.back().size();
        }
        write(pieces, copyable(std::move(handler)));
      },
      token);
  }

  boost::beast::tcp_stream tcp;

private:
  /// Of plain text, to encrypt at once.
  static constexpr std::size_t slice_bytes = 64_KiB;

  template <class Handler>
  static on_done copyable(Handler handler) {
    auto kept = std::make_shared<Handler>(std::move(handler));
    return [kept](boost::beast::error_code error, std::size_t bytes) { (*kept)(error, bytes); };
  }

  void read(std::span<std::byte> room, on_done done);
  void write(const std::vector<byte_span>& pieces, on_done done);
  void begin(on_done done);
  /// Sends what the channel has, and then reports `bytes`.
  void flush(std::size_t bytes, on_done done);
  /// Gives the channel what arrives, once.
  void receive(on_done done);
  void fail(failure why, on_done done);

  std::unique_ptr<tls_channel> tls_;
  std::vector<std::byte> arriving_;
  std::vector<std::byte> sending_;
  failure why_;
};

} // namespace waggle::net
