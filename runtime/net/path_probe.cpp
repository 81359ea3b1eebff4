#include "runtime/net/path_probe.hpp"

#include <memory>
#include <optional>

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "runtime/net/host_key.hpp"
#include "runtime/net/sockets.hpp"

namespace waggle::net {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using tcp = boost::asio::ip::tcp;
using width = narrow_paths::width;

class path_probe : public std::enable_shared_from_this<path_probe> {
public:
  path_probe(boost::asio::io_context& io, const endpoint& where, milliseconds timeout,
             std::function<void(width)> done)
    : stream_(io), where_(where), timeout_(timeout), done_(std::move(done)) {}

  void run() {
    auto address = numeric(where_.host);
    beast::error_code error;
    if (!address)
      return finish(width::unknown);
    tcp::endpoint there{*address, where_.port};
    open_socket(stream_.socket(), there.protocol(), error);
    if (error)
      return finish(width::unknown);
    stream_.expires_after(timeout_);
    stream_.async_connect(there, [me = shared_from_this()](beast::error_code failed) {
      if (failed)
        return me->finish(width::unknown);
      me->ask("/healthz", [me](beast::error_code small) {
        if (small)
          return me->finish(width::unknown);
        // More than two packets of the largest usual size, and less than what a request may have.
        me->ask("/metrics?" + std::string(4'000, 'x'), [me](beast::error_code large) {
          me->finish(!large                           ? width::wide
                     : large == beast::error::timeout ? width::narrow
                                                      : width::unknown);
        });
      });
    });
  }
  void end() {
    done_ = nullptr;
    stream_.close();
  }

private:
  void ask(const std::string& target, std::function<void(beast::error_code)> then) {
    request_ = {http::verb::get, target, 11};
    request_.set(http::field::host, to_string(where_));
    constexpr std::uint64_t page_bytes_max = 16U << 20U;
    parser_.emplace();
    parser_->body_limit(page_bytes_max);
    stream_.expires_after(timeout_);
    http::async_write(
      stream_, request_, [me = shared_from_this(), then](beast::error_code error, std::size_t) {
        if (error)
          return then(error);
        http::async_read(me->stream_, me->buffer_, *me->parser_,
                         [me, then](beast::error_code read, std::size_t) { then(read); });
      });
  }

  void finish(width found) {
    if (auto done = std::exchange(done_, nullptr))
      done(found);
    stream_.close();
  }

  beast::tcp_stream stream_;
  const endpoint where_;
  const milliseconds timeout_;
  std::function<void(width)> done_;
  http::request<http::empty_body> request_;
  beast::flat_buffer buffer_;
  std::optional<http::response_parser<http::string_body>> parser_;
};

} // namespace

std::function<void()> probe_path(boost::asio::io_context& io, const endpoint& where,
                                 milliseconds timeout,
                                 std::function<void(narrow_paths::width)> done) {
  auto made = std::make_shared<path_probe>(io, where, timeout, std::move(done));
  made->run();
  return [weak = std::weak_ptr{made}] {
    if (auto probe = weak.lock())
      probe->end();
  };
}

} // namespace waggle::net
