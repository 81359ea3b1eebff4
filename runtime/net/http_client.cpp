#include "runtime/net/http_client.hpp"

#include <optional>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

namespace waggle::net {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using tcp = boost::asio::ip::tcp;

/// One request on one connection; everything runs inside `http_get`.
struct exchange {
  explicit exchange(boost::asio::io_context& io) : resolver(io), stream(io) {
    parser.body_limit(16U << 20U);
  }

  void fail(ec code, const beast::error_code& error) { outcome = failure{code, error.message()}; }

  void begin(const endpoint& where) {
    resolver.async_resolve(
      where.host, std::to_string(where.port),
      [this](beast::error_code error, const tcp::resolver::results_type& found) {
        if (error)
          return fail(ec::unreachable, error);
        connect(found);
      });
  }
  void connect(const tcp::resolver::results_type& found) {
    stream.async_connect(found, [this](beast::error_code error, const tcp::endpoint&) {
      if (error)
        return fail(ec::unreachable, error);
      // By its address: a peer need not know the name by which it was found (http_hosts.hpp).
      beast::error_code gone;
      auto peer = stream.socket().remote_endpoint(gone);
      if (!gone)
        request.set(http::field::host,
                    to_string(endpoint{peer.address().to_string(), peer.port()}));
      http::async_write(stream, request, [this](beast::error_code failed, std::size_t) {
        if (failed)
          return fail(ec::unreachable, failed);
        read();
      });
    });
  }
  void read() {
    http::async_read(stream, buffer, parser, [this](beast::error_code error, std::size_t) {
      if (error)
        return fail(ec::malformed, error);
      const auto& got = parser.get();
      outcome =
        http_response{got.result_int(), std::string{got[http::field::content_type]}, got.body()};
    });
  }

  tcp::resolver resolver;
  beast::tcp_stream stream;
  http::request<http::empty_body> request;
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  std::optional<result<http_response>> outcome;
};

} // namespace

result<http_response> http_get(const endpoint& where, const std::string& target,
                               milliseconds timeout) {
  boost::asio::io_context io;
  exchange talk{io};
  talk.request.method(http::verb::get);
  talk.request.target(target);
  talk.request.version(11);
  talk.request.set(http::field::host, to_string(where));
  talk.request.set(http::field::connection, "close");
  talk.begin(where);
  io.run_for(timeout);
  if (!talk.outcome)
    return failure{ec::timeout, to_string(where) + " did not answer within "
                                  + std::to_string(timeout.count()) + " ms"};
  if (!talk.outcome->ok())
    return failure{talk.outcome->error().code,
                   to_string(where) + ": " + talk.outcome->error().detail};
  return **talk.outcome;
}

} // namespace waggle::net
