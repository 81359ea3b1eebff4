#include "runtime/net/http_client.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "runtime/net/byte_stream.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/page_proof.hpp"
#include "runtime/net/sockets.hpp"

namespace waggle::net {

namespace beast = boost::beast;
namespace http = beast::http;

result<http_response> http_get(const endpoint& where, const std::string& target,
                               milliseconds timeout, const std::optional<swarm_key>& key,
                               bool encrypted, const std::string& fingerprint) {
  boost::asio::io_context io; // first: outlives what uses it
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  constexpr auto pending = boost::asio::error::would_block;
  beast::error_code error;
  auto stream = std::make_shared<byte_stream>(tcp::socket{io});
  auto& socket = stream->socket();
  auto done = [&error](beast::error_code how, const auto&...) { error = how; };
  auto step = [&](auto begin) {
    error = pending;
    begin();
    io.restart();
    io.run_until(deadline);
    return !error.failed();
  };
  auto failed = [&](ec code) -> failure {
    if (const auto& why = stream->trouble())
      return {code, to_string(where) + ": " + why->detail};
    if (error == pending)
      return {ec::timeout, to_string(where) + " did not answer within "
                             + std::to_string(timeout.count()) + " ms"};
    return {code, to_string(where) + ": " + text_of(error, where.host)};
  };

  tcp::resolver resolver{io};
  tcp::resolver::results_type found;
  auto resolved = [&](beast::error_code how, const tcp::resolver::results_type& all) {
    error = how;
    found = all;
  };
  if (!step([&] { resolver.async_resolve(where.host, std::to_string(where.port), resolved); }))
    return failed(ec::unreachable);
  for (const auto& each : found) {
    socket.close(error);
    open_socket(socket, each.endpoint().protocol(), error);
    if (!error)
      step([&] { socket.async_connect(each.endpoint(), done); });
    if (!error || error == pending)
      break;
  }
  if (error == pending)
    return failure{ec::unreachable, "no connection with " + to_string(where) + " within "
                                      + std::to_string(timeout.count()) + " ms"};
  if (error)
    return failed(error == boost::asio::error::connection_refused ? ec::peer_lost
                                                                  : ec::unreachable);
  if ((key || encrypted || !fingerprint.empty()) && !step([&] {
        stream->encrypt(std::make_unique<tls_channel>(tls_context::of_reader(), true));
        stream->begin(done);
      }))
    return failed(ec::malformed);
  if (!fingerprint.empty() && stream->tls()->peer_fingerprint() != fingerprint)
    return failure{ec::bad_signature,
                   to_string(where) + " shows a certificate with another fingerprint, "
                     + stream->tls()->peer_fingerprint()
                     + ": compare it with what `waggle id` prints on the peer's machine"};
  http::request<http::empty_body> request{http::verb::get, target, 11};
  // By its address: a peer need not know the name by which it was found (http_hosts.hpp).
  beast::error_code gone;
  auto peer = socket.remote_endpoint(gone);
  request.set(http::field::host,
              to_string(gone ? where : endpoint{peer.address().to_string(), peer.port()}));
  request.set(http::field::connection, "close");
  std::optional<run_secret> run;
  page_of_channel page{{}, target};
  if (key) {
    run.emplace(*key);
    page.binding = stream->tls()->binding();
    request.set(http::field::authorization, page_proof(*run, page));
  }
  if (!step([&] { http::async_write(*stream, request, done); }))
    return failed(ec::unreachable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(16U << 20U);
  if (!step([&] { http::async_read(*stream, buffer, parser, done); }))
    return failed(ec::malformed);
  const auto& got = parser.get();
  auto shown = got[http::field::authentication_info];
  bool proved = !run || proves_answer(*run, page, {shown.data(), shown.size()});
  if (!proved && got.result_int() == 200)
    return failure{ec::bad_signature,
                   to_string(where)
                     + " does not show that it knows the swarm key: its run has another one or "
                       "none, or somebody stands in between"};
  if (!proved)
    return http_response{got.result_int(), {}, {}};
  return http_response{got.result_int(), std::string{got[http::field::content_type]}, got.body()};
}

} // namespace waggle::net
