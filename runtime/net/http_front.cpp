#include "runtime/net/http_front.hpp"

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>

#include "runtime/net/host_key.hpp"

namespace waggle::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

namespace {

/// [::] accepts IPv4, too.
error_code open(tcp::acceptor& acceptor, const tcp::endpoint& where) {
  error_code error;
  acceptor.open(where.protocol(), error);
  if (!error)
    acceptor.set_option(tcp::acceptor::reuse_address{true}, error);
  if (!error && where.address().is_v6())
    acceptor.set_option(asio::ip::v6_only{false}, error);
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

http_front::http_front(std::shared_ptr<const http_settings> settings,
                       connection_slots::limits limits)
  : settings_(std::move(settings)), slots_(limits), thread_([this] { io_.run(); }) {}

result<endpoint> http_front::listen(const endpoint& where, on_peer peers) {
  auto sentence = [&](const std::string& why) {
    return failure{ec::bad_config, "cannot listen on " + to_string(where) + ": " + why};
  };
  error_code error;
  tcp::endpoint address{asio::ip::make_address(where.host, error), where.port};
  if (error) {
    // Blocking is fine here: it is our own name, resolved once, before there are any links.
    auto found = tcp::resolver{io_}.resolve(where.host, std::string{}, error);
    if (error || found.empty())
      return sentence("'" + where.host + "' is not an address of this machine (" + error.message()
                      + ")");
    address.address(found.begin()->endpoint().address());
  }
  error = open(acceptor_, address);
  auto host = where.host;
  if (address.address() == asio::ip::address_v6::any()
      && (error == asio::error::address_family_not_supported
          || error == boost::system::errc::address_not_available)) { // a machine without IPv6
    address.address(asio::ip::address_v4::any());
    host = "0.0.0.0";
    error = open(acceptor_, address);
  }
  if (error) {
    if (error == asio::error::address_in_use)
      return sentence("the port is taken; choose another with --listen, or 0 for any");
    if (error == asio::error::access_denied)
      return sentence("ports below 1024 need privileges; choose another with --listen");
    return sentence(error.message());
  }
  auto bound = acceptor_.local_endpoint(error);
  asio::post(io_, [this, peers = std::move(peers)]() mutable {
    peers_ = std::move(peers);
    accept_next();
  });
  return endpoint{host, bound.port()};
}

void http_front::stop() {
  if (!thread_.joinable())
    return;
  io_.stop(); // does not wait for clients
  thread_.join();
  error_code ignored;
  acceptor_.close(ignored);
  close_.clear();
  peers_ = nullptr;
}

void http_front::accept_next() {
  acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted)
      return;
    if (error) {
      // Most likely out of descriptors: give the open connections time to end.
      back_off_.expires_after(std::chrono::milliseconds{100});
      back_off_.async_wait([this](const error_code& e) {
        if (!e)
          accept_next();
      });
      return;
    }
    serve(std::move(socket));
    accept_next();
  });
}

void http_front::serve(tcp::socket socket) {
  error_code gone;
  auto remote = socket.remote_endpoint(gone).address();
  auto local = gone ? remote : socket.local_endpoint(gone).address();
  if (gone)
    return;
  auto id = ++last_;
  if (auto victim = slots_.add(id, host_key(remote, local))) {
    if (settings_->events->refused)
      settings_->events->refused(ec::rate_limited);
    if (auto found = close_.extract(*victim))
      found.mapped()();
  }
  on_upgrade upgraded;
  if (peers_)
    upgraded = [this, accepted = std::chrono::steady_clock::now()](tcp::socket peer,
                                                                   std::string early) {
      error_code error;
      auto local = peer.local_endpoint(error);
      unique_fd socket_fd{error ? -1 : peer.release(error)};
      if (!error && socket_fd)
        peers_({std::move(socket_fd), local.protocol() == tcp::v6(), std::move(early), accepted});
    };
  auto closer = serve_http(std::move(socket), settings_, std::move(upgraded), [this, id] {
    slots_.remove(id);
    close_.erase(id);
  });
  close_.emplace(id, std::move(closer));
}

} // namespace waggle::net
