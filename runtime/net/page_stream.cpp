#include "runtime/net/page_stream.hpp"

#include <array>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <sys/socket.h>

namespace waggle::net {

namespace asio = boost::asio;
using boost::beast::error_code;

void page_stream::dial(std::unique_ptr<tls_channel> with, on_done done) {
  tls_ = std::move(with);
  begin(std::move(done));
}

void page_stream::begin(on_done done) {
  auto ready = tls_->begin();
  if (!ready)
    return fail(ready.error(), std::move(done));
  flush(0, [this, open = *ready, done = std::move(done)](error_code error, std::size_t) mutable {
    if (error || open)
      return done(error, 0);
    receive([this, done = std::move(done)](error_code failed, std::size_t) mutable {
      if (failed)
        return done(failed, 0);
      begin(std::move(done));
    });
  });
}

void page_stream::read(std::span<std::byte> room, on_done done) {
  auto bytes = tls_->read(room);
  if (!bytes && bytes.error().code == ec::peer_lost) // the other end says that it is done
    return asio::post(get_executor(),
                      [done = std::move(done)] { done(asio::error::eof, std::size_t{0}); });
  if (!bytes)
    return fail(bytes.error(), std::move(done));
  if (*bytes > 0 || room.empty())
    return asio::post(get_executor(),
                      [done = std::move(done), got = *bytes] { done(error_code{}, got); });
  flush(0, [this, room, done = std::move(done)](error_code error, std::size_t) mutable {
    if (error)
      return done(error, 0);
    receive([this, room, done = std::move(done)](error_code failed, std::size_t) mutable {
      if (failed)
        return done(failed, 0);
      read(room, std::move(done));
    });
  });
}

void page_stream::write(const std::vector<byte_span>& pieces, on_done done) {
  std::size_t all = 0;
  for (auto piece : pieces) {
    if (piece.empty())
      continue;
    if (auto written = tls_->write(piece); !written)
      return fail(written.error(), std::move(done));
    all += piece.size();
  }
  flush(all, std::move(done));
}

void page_stream::flush(std::size_t bytes, on_done done) {
  sending_ = tls_->take_output();
  if (sending_.empty())
    return asio::post(get_executor(),
                      [done = std::move(done), bytes] { done(error_code{}, bytes); });
  asio::async_write(tcp, asio::buffer(sending_),
                    [this, bytes, done = std::move(done)](error_code error, std::size_t) {
                      sending_ = {};
                      done(error, bytes);
                    });
}

void page_stream::receive(on_done done) {
  arriving_.resize(record_bytes);
  tcp.async_read_some(asio::buffer(arriving_),
                      [this, done = std::move(done)](error_code error, std::size_t bytes) {
                        tls_->arrived(byte_span{arriving_}.first(bytes));
                        arriving_ = {};
                        done(error, 0);
                      });
}

void page_stream::fail(failure why, on_done done) {
  why_ = std::move(why);
  // Whatever happens to the alert, this has failed.
  flush(0, [done = std::move(done)](error_code, std::size_t) {
    done(asio::error::connection_aborted, 0);
  });
}

void page_stream::finish(on_done done) {
  auto end = [this, done = std::move(done)](error_code error, std::size_t) {
    error_code ignored;
    tcp.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    done(error, 0);
  };
  if (!tls_)
    return end({}, 0);
  tls_->close();
  flush(0, std::move(end));
}

bool page_stream::is_over() {
  std::array<std::byte, 4_KiB> next;
  auto bytes = ::recv(tcp.socket().native_handle(), next.data(), tls_ ? next.size() : 1,
                      MSG_DONTWAIT | (tls_ ? 0 : MSG_PEEK));
  if (bytes <= 0 || !tls_)
    return bytes == 0;
  tls_->arrived(byte_span{next}.first(static_cast<std::size_t>(bytes)));
  std::array<std::byte, 4_KiB> dropped;
  return !tls_->read(dropped);
}

} // namespace waggle::net
