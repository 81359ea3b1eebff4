#pragma once

// Internal to runtime/net: sockets that children of this process do not inherit. A child that does
// (os.system, posix_spawn) keeps the port taken, and links open, when this process has been killed.
// Asio's own functions do not set close-on-exec on sockets that they open or accept.

#include <cerrno>

#include <boost/system/error_code.hpp>
#include <sys/socket.h>

#include "runtime/core/unique_fd.hpp"

namespace waggle::net {

template <class Socket>
void open_socket(Socket& socket, const typename Socket::protocol_type& of,
                 boost::system::error_code& error) {
  unique_fd made{::socket(of.family(), of.type() | SOCK_CLOEXEC, of.protocol())};
  if (!made) {
    error.assign(errno, boost::system::system_category());
    return;
  }
  socket.assign(of, made.get(), error);
  if (!error)
    (void)made.release();
}

/// A connection that `listener` has; none, with errno: EAGAIN if there is no more.
inline unique_fd accept_socket(int listener) {
  return unique_fd{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
}
/// Whether the next connection may be accepted at once although this one, with errno, was not.
inline bool may_accept_next() {
  return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED || errno == EPROTO;
}

} // namespace waggle::net
