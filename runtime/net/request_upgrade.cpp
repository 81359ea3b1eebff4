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

struct upgrade_request {
  upgrade_request(std::shared_ptr<byte_stream> over, std::function<void(failure, std::string)> then)
    : stream(std::move(over)), done(std::move(then)) {}

  void finish(failure why) {
    auto early = why.code == ec::none ? beast::buffers_to_string(buffer.data()) : std::string{};
    done(std::move(why), std::move(early));
  }

  std::shared_ptr<byte_stream> stream;
  std::function<void(failure, std::string)> done;
  beast::flat_buffer buffer{16_KiB};
  http::request<http::empty_body> request{http::verb::get, "/peer", 11};
  http::response_parser<http::empty_body> parser;
};

failure upgrade_failure(const beast::error_code& error) {
  if (error.category() == http::make_error_code(http::error::bad_method).category())
    return {ec::malformed, "the server there does not speak HTTP"};
  return failure_of(error);
}

} // namespace

void request_upgrade(std::shared_ptr<byte_stream> stream, const std::string& host,
                     std::function<void(failure, std::string)> done) {
  auto x = std::make_shared<upgrade_request>(std::move(stream), std::move(done));
  x->request.set(http::field::host, host);
  x->request.set(http::field::connection, "Upgrade");
  x->request.set(http::field::upgrade, upgrade_protocol);
  http::async_write(*x->stream, x->request, [x](beast::error_code error, std::size_t) {
    if (error)
      return x->finish(upgrade_failure(error));
    http::async_read_header(
      *x->stream, x->buffer, x->parser, [x](beast::error_code e, std::size_t) {
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
}

} // namespace waggle::net
