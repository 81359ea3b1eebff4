#pragma once

// Internal to runtime/net: the port, and HTTP on it.

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/core/unique_fd.hpp"
#include "runtime/net/connection_slots.hpp"
#include "runtime/net/host_budgets.hpp"
#include "runtime/net/http_connection.hpp"

namespace waggle::net {

/// A connection that has become one between peers.
struct upgraded_socket {
  unique_fd socket;
  bool v6 = false;
  std::string early;                  // bytes that followed the request
  std::unique_ptr<tls_channel> tls{}; // null: not encrypted
  std::chrono::steady_clock::time_point accepted{};
};

/// Accepts connections and answers HTTP on a thread of its own, so that requests never delay the
/// thread that reads what peers send in a round. Upgraded sockets are passed on.
class http_front {
public:
  using on_peer = std::function<void(upgraded_socket)>; // on the front's thread

  /// `encrypting`: of the first messages of TLS.
  http_front(http_settings settings, connection_slots::limits limits,
             host_budgets encrypting = {work{100'000}, 512});
  ~http_front() { stop(); }
  http_front(const http_front&) = delete;
  http_front& operator=(const http_front&) = delete;

  /// Accepts connections from now on, at each of `where`. `peers` may be empty: no upgrades. The
  /// result is the addresses that were bound, in the same order. Fails with ec::bad_config and a
  /// sentence for the operator, and then listens nowhere; called again only after that. [::]
  /// accepts IPv4, too, unless an IPv4 address with the same port is in the list; on a machine
  /// without IPv6 it becomes 0.0.0.0.
  result<std::vector<endpoint>> listen(const std::vector<endpoint>& where, on_peer peers);

  /// Goes on with a connection as with one that it has accepted. Any thread.
  void adopt(unique_fd connected, bool v6);

  /// Closes everything. Nothing is called after this returns. Called by any thread but the front's.
  void stop();

private:
  struct listener {
    explicit listener(boost::asio::io_context& io) : acceptor(io), back_off(io) {}
    boost::asio::ip::tcp::acceptor acceptor;
    boost::asio::steady_timer back_off;
  };

  static result<endpoint> open(listener& at, const endpoint& where, bool ipv6_only,
                               boost::asio::io_context& io);
  void accept_next(listener& at);
  void serve(boost::asio::ip::tcp::socket socket);
  bool begin_stream(connection_slots::number id, const std::string& host);

  const std::shared_ptr<const http_settings> settings_;
  host_budgets encrypting_;
  connection_slots slots_; // without the streams
  stream_slots streams_;
  connection_slots::number last_ = 0;
  on_peer peers_;
  // After what connections use when they end: they end with the context.
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
    io_.get_executor()};
  std::list<listener> listeners_;
  std::thread thread_; // last: runs while all of the above exist
};

} // namespace waggle::net
