#pragma once

// Internal to runtime/net: a connection that carries HTTP, plain or encrypted, for Beast.

#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>

#include "runtime/net/byte_stream.hpp"

namespace waggle::net {

/// An AsyncStream. Reads into the first of several buffers, and writes all of them.
struct page_stream {
  using executor_type = tcp::socket::executor_type;

  explicit page_stream(tcp::socket socket)
    : bytes(std::make_shared<byte_stream>(std::move(socket))) {}

  executor_type get_executor() { return bytes->socket().get_executor(); }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& to, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
      [this, &to](auto handler) {
        asio::mutable_buffer first = *asio::buffer_sequence_begin(to);
        bytes->read({static_cast<std::byte*>(first.data()), first.size()},
                    [kept = shared(std::move(handler))](const error_code& error, std::size_t read) {
                      (*kept)(error, read);
                    });
      },
      token);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& from, Token&& token) {
    return asio::async_initiate<Token, void(error_code, std::size_t)>(
      [this, &from](auto handler) {
        bytes->write({asio::buffer_sequence_begin(from), asio::buffer_sequence_end(from)},
                     [kept = shared(std::move(handler)), all = asio::buffer_size(from)](
                       const error_code& error) { (*kept)(error, error ? 0 : all); });
      },
      token);
  }

  const std::shared_ptr<byte_stream> bytes;

private:
  /// A handler that can be copied.
  template <class Handler>
  static auto shared(Handler handler) {
    return std::make_shared<Handler>(std::move(handler));
  }
};

} // namespace waggle::net
