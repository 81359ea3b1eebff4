#include "runtime/net/byte_stream.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <sys/socket.h>

#include "runtime/core/bytes.hpp"
#include "runtime/net/host_key.hpp"

namespace waggle::net {

namespace {

// transfer_all() would stop each system call at 64 KiB.
constexpr std::size_t step_bytes = 16_MiB;

const auto big_steps = [](const error_code& error, std::size_t) -> std::size_t {
  return error ? 0 : step_bytes;
};

// One system call for so many encrypted bytes: they stay in the cache until they are used.
constexpr std::size_t encrypted_bytes_max = 256_KiB;
// These pass where the path drops large packets (narrow_paths.hpp).
constexpr std::size_t small_packet_bytes = 1'100;
constexpr std::size_t record_overhead = 22 + 5; // more than TLS adds to a record of 16 KiB

/// The memory of the last write, empty, for the next one of any link: fresh pages for each would
/// cost more than the encryption.
thread_local std::vector<std::byte> spare;

} // namespace

failure failure_of(const error_code& error) {
  if (error == asio::error::eof || error == asio::error::connection_reset
      || error == asio::error::broken_pipe || error == asio::error::connection_aborted)
    return {ec::peer_lost, "the connection was closed"};
  if (error == asio::error::timed_out)
    return {ec::timeout, error.message()};
  if (error == asio::error::operation_aborted)
    return {ec::cancelled, {}};
  return {ec::unreachable, error.message()};
}

bool leaves_machine(const tcp::socket& socket) {
  error_code gone;
  auto remote = unmapped(socket.remote_endpoint(gone).address());
  if (gone)
    return true;
  auto local = unmapped(socket.local_endpoint(gone).address());
  return gone || !remote.is_loopback() || !local.is_loopback();
}

failure byte_stream::why(const error_code& error) const {
  return trouble_ ? *trouble_ : failure_of(error);
}

void byte_stream::fail(failure why, error_code& error) {
  if (why.code == ec::peer_lost) { // the other end says that nothing follows
    error = asio::error::eof;
    return;
  }
  trouble_ = std::move(why);
  error = boost::system::errc::make_error_code(boost::system::errc::protocol_error);
}

void byte_stream::expires_after(std::chrono::steady_clock::duration time) {
  deadline_.expires_after(time);
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    auto me = weak.lock();
    if (error || !me || me->deadline_.expiry() > std::chrono::steady_clock::now())
      return;
    me->trouble_ = {ec::timeout, {}};
    error_code ignored;
    me->socket_.close(ignored);
  });
}

// -- the handshake -------------------------------------------------------------------------------

void byte_stream::begin(on_written done, std::size_t most) {
  auto ready = tls_->begin();
  if (ready.ok() && !*ready && most == 0)
    ready = failure{ec::oversize, "the handshake of TLS is too long"};
  error_code error;
  if (!ready) {
    fail(ready.error(), error);
    write_more(); // an alert
  }
  // The channel's last message goes with the first bytes that are written.
  if (error || *ready)
    return asio::post(socket_.get_executor(),
                      [me = shared_from_this(), error, done = std::move(done)] { done(error); });
  write_more();
  socket_.async_wait(tcp::socket::wait_read, [me = shared_from_this(), done = std::move(done),
                                              most](error_code failed) mutable {
    auto bytes = failed ? byte_span{} : me->receive(0, failed);
    if (failed)
      return done(failed);
    me->tls_->arrived(bytes);
    me->begin(std::move(done), most - std::min(most, bytes.size()));
  });
}

// -- reading -------------------------------------------------------------------------------------

byte_span byte_stream::receive(std::size_t wanted, error_code& error) {
  static thread_local std::vector<std::byte> all(encrypted_bytes_max);
  auto most = std::clamp(wanted + wanted / 64 + record_overhead, std::size_t{4_KiB}, all.size());
  auto bytes = ::recv(socket_.native_handle(), all.data(), most, MSG_DONTWAIT);
  if (bytes > 0)
    return byte_span{all}.first(static_cast<std::size_t>(bytes));
  if (bytes == 0)
    error = asio::error::eof;
  else if (errno != EAGAIN && errno != EINTR)
    error.assign(errno, boost::system::system_category());
  return {};
}

void byte_stream::read(std::span<std::byte> room, on_read done) {
  if (!tls_)
    return socket_.async_read_some(asio::buffer(room.data(), std::min(room.size(), step_bytes)),
                                   std::move(done));
  room = room.first(std::min(room.size(), encrypted_bytes_max));
  asio::post(socket_.get_executor(),
             [me = shared_from_this(), room, done = std::move(done)]() mutable {
               me->read_more(room, std::move(done));
             });
}

void byte_stream::read_more(std::span<std::byte> room, on_read done) {
  error_code error;
  byte_span arrived;
  for (;;) {
    auto bytes = tls_->read(room, arrived);
    if (!bytes)
      fail(bytes.error(), error);
    write_more(); // the channel may have something to say
    if (error || *bytes > 0)
      return done(error, error ? 0 : *bytes);
    arrived = receive(room.size(), error);
    if (error)
      return done(error, 0);
    if (arrived.empty())
      break;
  }
  socket_.async_wait(
    tcp::socket::wait_read,
    [me = shared_from_this(), room, done = std::move(done)](const error_code& failed) mutable {
      if (failed)
        return done(failed, 0);
      me->read_more(room, std::move(done));
    });
}

bool byte_stream::is_over() {
  std::array<std::byte, 4_KiB> dropped;
  if (!tls_)
    return ::recv(socket_.native_handle(), dropped.data(), 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  error_code error;
  auto arrived = receive(dropped.size(), error);
  return error || !tls_->read(dropped, arrived);
}

// -- writing -------------------------------------------------------------------------------------

void byte_stream::write(std::vector<asio::const_buffer> all, on_written done) {
  if (!tls_)
    return asio::async_write(
      socket_, all, big_steps,
      [done = std::move(done)](const error_code& error, std::size_t) { done(error); });
  unwritten_ = std::move(all);
  std::reverse(unwritten_.begin(), unwritten_.end()); // the next one is the last
  written_ = std::move(done);
  write_more();
}

void byte_stream::finish(on_written done) {
  if (tls_)
    tls_->close();
  write({}, [me = shared_from_this(), done = std::move(done)](const error_code& error) {
    error_code ignored;
    me->socket_.shutdown(tcp::socket::shutdown_send, ignored);
    done(error);
  });
}

byte_span byte_stream::next_piece(std::size_t room) {
  constexpr std::size_t small = 1_KiB; // a prefix and its header become one record
  static thread_local std::vector<std::byte> together;
  together.clear();
  while (!unwritten_.empty() && unwritten_.back().size() <= small
         && together.size() + unwritten_.back().size() <= std::min(room, record_bytes)) {
    const auto* bytes = static_cast<const std::byte*>(unwritten_.back().data());
    together.insert(together.end(), bytes, bytes + unwritten_.back().size());
    unwritten_.pop_back();
  }
  if (!together.empty() || unwritten_.empty())
    return together;
  auto& next = unwritten_.back();
  byte_span piece{static_cast<const std::byte*>(next.data()), std::min(room, next.size())};
  next += piece.size();
  if (next.size() == 0)
    unwritten_.pop_back();
  return piece;
}

void byte_stream::write_more() {
  if (!sending_.empty())
    return;
  error_code error;
  if (!unwritten_.empty())
    tls_->write_into(std::exchange(spare, {}));
  for (auto room = encrypted_bytes_max; !unwritten_.empty() && room > 0 && !error;) {
    auto piece = next_piece(room);
    room -= piece.size();
    if (auto done = piece.empty() ? status{waggle::done{}} : tls_->write(piece); !done)
      fail(done.error(), error);
  }
  sending_ = tls_->take_output();
  if (error || sending_.empty()) {
    sending_.clear();
    unwritten_.clear();
    if (auto done = std::exchange(written_, nullptr)) // never from within `write`
      asio::post(socket_.get_executor(), [error, done = std::move(done)] { done(error); });
    return;
  }
  send_on(0);
}

void byte_stream::send_on(std::size_t sent) {
  asio::const_buffer rest = asio::buffer(sending_) + sent;
  auto then = [me = shared_from_this(), sent](const error_code& failed, std::size_t bytes) {
    if (!failed && sent + bytes < me->sending_.size())
      return me->send_on(sent + bytes);
    me->sending_.clear();
    if (me->sending_.capacity() > spare.capacity())
      spare.swap(me->sending_);
    me->sending_ = {}; // an idle link holds no buffer
    if (!failed && (!me->unwritten_.empty() || (me->tls_ && me->tls_->has_output())))
      return me->write_more();
    me->unwritten_.clear();
    if (auto done = std::exchange(me->written_, nullptr))
      done(failed);
  };
  if (small_packets_ == 0)
    return asio::async_write(socket_, rest, big_steps, std::move(then));
  --small_packets_;
  // The kernel puts nothing else into the packet of these bytes.
  socket_.async_send(asio::buffer(rest, small_packet_bytes), tcp::socket::message_end_of_record,
                     std::move(then));
}

} // namespace waggle::net
