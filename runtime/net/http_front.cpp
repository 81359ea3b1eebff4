#include "runtime/net/http_front.hpp"

#include <algorithm>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>

#include "runtime/core/try.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/refusals.hpp"
#include "runtime/net/sockets.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

namespace {

error_code bind(tcp::acceptor& acceptor, const tcp::endpoint& where, bool ipv6_only) {
  error_code error;
  open_socket(acceptor, where.protocol(), error);
  if (!error)
    acceptor.set_option(tcp::acceptor::reuse_address{true}, error);
  if (!error && where.address().is_v6())
    acceptor.set_option(asio::ip::v6_only{ipv6_only}, error);
  if (!error)
    acceptor.bind(where, error);
  if (!error)
    acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) {
    error_code ignored;
    acceptor.close(ignored);
  }
  return error;
}

} // namespace

http_front::http_front(http_settings settings, connection_slots::limits limits,
                       host_budgets encrypting)
  : settings_(std::make_shared<const http_settings>(std::move(settings))),
    encrypting_(std::move(encrypting)), slots_(limits), thread_([this] { io_.run(); }) {}

result<std::vector<endpoint>> http_front::listen(const std::vector<endpoint>& where,
                                                 on_peer peers) {
  std::list<listener> opened;
  std::vector<endpoint> bound;
  for (const auto& each : where) {
    bool beside_ipv4 = std::any_of(where.begin(), where.end(), [&](const endpoint& other) {
      return other.port == each.port && each.port != 0 && other.host.find(':') == std::string::npos;
    });
    WAGGLE_TRY(at, open(opened.emplace_back(io_), each, beside_ipv4, io_));
    bound.push_back(*at);
  }
  listeners_ = std::move(opened);
  asio::post(io_, [this, peers = std::move(peers)]() mutable {
    peers_ = std::move(peers);
    for (auto& each : listeners_)
      accept_next(each);
  });
  return bound;
}

result<endpoint> http_front::open(listener& at, const endpoint& where, bool ipv6_only,
                                  asio::io_context& io) {
  auto sentence = [&](const std::string& why) {
    return failure{ec::bad_config, "cannot listen on " + to_string(where) + ": " + why};
  };
  error_code error;
  tcp::endpoint address{asio::ip::make_address(where.host, error), where.port};
  if (error) {
    // Blocking is fine here: it is our own name, resolved once, before there are any links.
    auto found = tcp::resolver{io}.resolve(where.host, std::string{}, error);
    if (error || found.empty())
      return sentence("'" + where.host + "' is not an address of this machine (" + error.message()
                      + ")");
    address.address(found.begin()->endpoint().address());
  }
  error = bind(at.acceptor, address, ipv6_only);
  auto host = where.host;
  if (!ipv6_only && address.address() == asio::ip::address_v6::any()
      && (error == asio::error::address_family_not_supported
          || error == boost::system::errc::address_not_available)) { // a machine without IPv6
    address.address(asio::ip::address_v4::any());
    host = "0.0.0.0";
    error = bind(at.acceptor, address, false);
  }
  if (error) {
    if (error == asio::error::address_in_use)
      return sentence("the port is taken: listen on another, or on 0 for any");
    if (error == asio::error::access_denied)
      return sentence("ports below 1024 need privileges: listen on another");
    if (error == boost::system::errc::address_not_available)
      return sentence(std::string{no_such_address});
    return sentence(text_of(error, where.host));
  }
  return endpoint{host, at.acceptor.local_endpoint(error).port()};
}

void http_front::stop() {
  if (!thread_.joinable())
    return;
  io_.stop(); // does not wait for clients
  thread_.join();
  listeners_.clear();
  peers_ = nullptr;
}

void http_front::accept_next(listener& at) {
  at.acceptor.async_wait(tcp::acceptor::wait_read, [this, &at](error_code error) {
    if (error == asio::error::operation_aborted)
      return;
    unique_fd peer;
    if (!error)
      peer = accept_socket(at.acceptor.native_handle());
    if (error || (!peer && !may_accept_next())) {
      // Most likely out of descriptors: give the open connections time to end.
      at.back_off.expires_after(std::chrono::milliseconds{100});
      at.back_off.async_wait([this, &at](const error_code& e) {
        if (!e)
          accept_next(at);
      });
      return;
    }
    tcp::socket socket{io_};
    if (peer)
      socket.assign(at.acceptor.local_endpoint(error).protocol(), peer.get(), error);
    if (peer && !error) {
      (void)peer.release();
      serve(std::move(socket));
    }
    accept_next(at);
  });
}

void http_front::adopt(unique_fd connected, bool v6) {
  asio::post(io_, [this, fd = std::move(connected), v6]() mutable {
    tcp::socket socket{io_};
    error_code error;
    socket.assign(v6 ? tcp::v6() : tcp::v4(), fd.get(), error);
    if (error)
      return;
    (void)fd.release();
    serve(std::move(socket));
  });
}

void http_front::serve(tcp::socket socket) {
  error_code gone;
  auto remote = socket.remote_endpoint(gone).address();
  auto local = gone ? remote : socket.local_endpoint(gone).address();
  if (gone)
    return;
  auto id = ++last_;
  auto host = host_key(remote, local);
  http_owner owner;
  if (peers_)
    owner.upgraded = [this, accepted = std::chrono::steady_clock::now()](
                       tcp::socket peer, std::string early, std::unique_ptr<tls_channel> tls) {
      error_code error;
      auto local = peer.local_endpoint(error);
      unique_fd socket_fd{error ? -1 : peer.release(error)};
      if (!error && socket_fd)
        peers_({std::move(socket_fd), local.protocol() == tcp::v6(), std::move(early),
                std::move(tls), accepted});
    };
  owner.may_stream = [this, id, host] { return begin_stream(id, host); };
  owner.may_encrypt = [this, host] {
    return encrypting_.take(host, cost::handshake, std::chrono::steady_clock::now());
  };
  owner.finished = [this, id] {
    slots_.remove(id);
    streams_.remove(id);
  };
  if (slots_.add(id, host, serve_http(std::move(socket), settings_, std::move(owner))))
    settings_->events->refused(ec::rate_limited);
}

/// A stream does not take the place of requests.
bool http_front::begin_stream(connection_slots::number id, const std::string& host) {
  error_code error;
  auto address = asio::ip::make_address(host, error);
  if (!streams_.add(id, host, !error && address.is_loopback()))
    return false;
  slots_.remove(id);
  return true;
}

} // namespace waggle::net
