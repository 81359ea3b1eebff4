// The dialler's side of the HTTP upgrade.

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "runtime/core/bytes.hpp"
#include "runtime/net/byte_stream.hpp"
#include "runtime/net/http_connection.hpp"
#include "runtime/net/refusals.hpp"

namespace waggle::net {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;

struct upgrade_request : std::enable_shared_from_this<upgrade_request> {
  explicit upgrade_request(tcp::socket socket) : stream(std::move(socket)) {}

  void finish(failure why) {
    if (why.code != ec::none)
      return done(std::move(why), tcp::socket{stream.get_executor()}, {});
    done({}, stream.release_socket(), beast::buffers_to_string(buffer.data()));
  }

  beast::tcp_stream stream;
  beast::flat_buffer buffer{16_KiB};
  http::request<http::empty_body> request{http::verb::get, "/peer", 11};
  http::response_parser<http::empty_body> parser;
  std::function<void(failure, tcp::socket, std::string)> done;
};

failure upgrade_failure(const beast::error_code& error) {
  if (error.category() == http::make_error_code(http::error::bad_method).category())
    return {ec::malformed, "the server there does not speak HTTP"};
  return failure_of(error);
}

} // namespace

std::function<void()> request_upgrade(tcp::socket socket, const std::string& host,
                                      std::function<void(failure, tcp::socket, std::string)> done) {
  auto x = std::make_shared<upgrade_request>(std::move(socket));
  x->done = std::move(done);
  x->request.set(http::field::host, host);
  x->request.set(http::field::connection, "Upgrade");
  x->request.set(http::field::upgrade, upgrade_protocol);
  http::async_write(x->stream, x->request, [x](beast::error_code error, std::size_t) {
    if (error)
      return x->finish(upgrade_failure(error));
    http::async_read_header(x->stream, x->buffer, x->parser, [x](beast::error_code e, std::size_t) {
      if (e)
        return x->finish(upgrade_failure(e));
      if (x->parser.get()[http::field::upgrade] == upgrade_to_tls)
        return x->finish({ec::wrong_version, std::string{not_encrypted}});
      if (x->parser.get().result() != http::status::switching_protocols)
        return x->finish({ec::wrong_version, std::string{not_a_peer} + " (HTTP status "
                                               + std::to_string(x->parser.get().result_int())
                                               + ")"});
      x->finish({});
    });
  });
  return [weak = std::weak_ptr{x}] {
    if (auto request = weak.lock())
      request->stream.close();
  };
}

} // namespace waggle::net
