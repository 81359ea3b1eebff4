#include "runtime/net/http_connection.hpp"

#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "runtime/core/bytes.hpp"
#include "runtime/net/gzip.hpp"
#include "runtime/net/http_answers.hpp"
#include "runtime/net/page_proof.hpp"
#include "runtime/net/refusals.hpp"
#include "runtime/net/tcp_session.hpp"

namespace waggle::net {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;

/// Nothing that is served here reads a request's body.
constexpr std::size_t body_bytes_max = 4_KiB;
constexpr std::size_t first_bytes_max = 4_KiB;
/// A client's first message of TLS has some 300 bytes.
constexpr std::size_t hello_bytes_max = 16_KiB;
/// Prometheus asks every 15 to 60 seconds.
constexpr auto keep_alive_time = std::chrono::seconds{75};

/// A body that ends with the connection. It keeps itself, and the connection that `stream` shares,
/// while it is written. One write is under way at a time, and between two is a pause: that bounds
/// what a client costs.
class streamed_body : public std::enable_shared_from_this<streamed_body> {
public:
  streamed_body(std::shared_ptr<byte_stream> stream, std::shared_ptr<const http_settings> settings,
                http_stream body)
    : stream_(std::move(stream)), settings_(std::move(settings)), body_(std::move(body)),
      pause_(stream_->get_executor()) {}

  void send_more() {
    piece_ = next_piece(body_, *settings_);
    if (piece_.empty())
      return pause();
    stream_->expires_after(settings_->stream_timeout);
    boost::asio::async_write(*stream_, boost::asio::buffer(piece_),
                             [me = shared_from_this()](beast::error_code error, std::size_t) {
                               if (!error)
                                 me->pause();
                             });
  }

private:
  void pause() {
    constexpr auto between_frames = std::chrono::milliseconds{100};
    stream_->expires_never();
    pause_.expires_after(between_frames);
    pause_.async_wait([me = shared_from_this()](beast::error_code error) {
      // Otherwise, a stream that has nothing to send keeps its place.
      if (!error && me->stream_->socket().is_open() && !me->stream_->is_over())
        me->send_more();
    });
  }

  std::shared_ptr<byte_stream> stream_;
  std::shared_ptr<const http_settings> settings_;
  http_stream body_;
  std::string piece_;
  boost::asio::steady_timer pause_;
};

class http_connection : public std::enable_shared_from_this<http_connection> {
public:
  http_connection(tcp::socket socket, std::shared_ptr<const http_settings> settings,
                  http_owner owner)
    : stream_(std::make_shared<byte_stream>(std::move(socket))), settings_(std::move(settings)),
      owner_(std::move(owner)) {}

  ~http_connection() { owner_.finished(); }

  void close() {
    beast::error_code ignored;
    stream_->socket().close(ignored);
  }

  /// Peers of other machines and clients of HTTPS begin with TLS, all others with a request.
  void begin() {
    stream_->expires_after(settings_->timeout);
    read_plain();
  }

  /// The next request of a connection that was answered: a client may wait for long before it, and
  /// close the connection instead.
  void await_next() {
    if (buffer_.size() > 0)
      return read();
    constexpr std::size_t step = 4_KiB;
    stream_->expires_after(keep_alive_time);
    stream_->async_read_some(buffer_.prepare(step),
                             [me = shared_from_this()](beast::error_code error, std::size_t bytes) {
                               if (error)
                                 return;
                               me->buffer_.commit(bytes);
                               me->read();
                             });
  }

  void read() {
    stream_->expires_after(settings_->timeout);
    parse();
  }

  void parse() {
    parser_.emplace();
    parser_->header_limit(8_KiB);
    parser_->body_limit(body_bytes_max);
    http::async_read(*stream_, buffer_, *parser_,
                     [me = shared_from_this()](beast::error_code error, std::size_t) {
                       if (error)
                         return me->reject(error);
                       me->answer();
                     });
  }

private:
  void reject(beast::error_code error) {
    if (const auto& why = stream_->trouble())
      return count(why->code);
    if (error == http::error::end_of_stream
        || error.category() != http::make_error_code(http::error::bad_method).category())
      return; // the client has left, or the socket failed
    bool long_header = error == http::error::header_limit;
    bool long_body = error == http::error::body_limit;
    count(long_header || long_body ? ec::oversize : ec::malformed);
    respond(plain_page(long_header ? 431
                       : long_body ? 413
                                   : 400,
                       "This port speaks HTTP/1.1 and the waggle protocol; that was neither.\n"),
            false);
  }

  [[nodiscard]] byte_span bytes_read() const {
    auto data = buffer_.cdata();
    return {static_cast<const std::byte*>(data.data()), data.size()};
  }

  /// The beginning of a client's first message is here: of a peer's, or for pages.
  void begin_tls() {
    if (!settings_->tls || !owner_.may_encrypt())
      return count(settings_->tls ? ec::rate_limited : ec::wrong_version);
    auto channel = std::make_unique<tls_channel>(*settings_->tls, false);
    auto most = hello_bytes_max - buffer_.size();
    channel->arrived(bytes_read());
    buffer_.consume(buffer_.size());
    auto& bytes = *stream_;
    bytes.encrypt(std::move(channel));
    bytes.begin(
      [me = shared_from_this(), &bytes](beast::error_code error) {
        if (error)
          return me->reject(error);
        if (bytes.tls()->is_for_pages())
          return me->parse();
        if (!me->owner_.upgraded) // this peer is a client
          return me->count(ec::unreachable);
        auto link = bytes.release_tls();
        me->owner_.upgraded(std::move(bytes.socket()), {}, std::move(link));
      },
      most);
  }

  void read_plain() {
    stream_->async_read_some(buffer_.prepare(first_bytes_max),
                             [me = shared_from_this()](beast::error_code error, std::size_t bytes) {
                               if (error)
                                 return me->reject(error);
                               me->buffer_.commit(bytes);
                               if (me->bytes_read().front() == tls_first_byte)
                                 return me->begin_tls();
                               me->parse();
                             });
  }

  void count(ec reason) { settings_->events->refused(reason); }

  void answer() {
    auto request = parser_->release();
    if (!stream_->tls() && http::token_list{request[http::field::connection]}.exists("upgrade"))
      return answer_upgrade(request);
    auto began = std::chrono::steady_clock::now();
    auto asked = described(request, *stream_, *settings_);
    auto reply = answer_to(asked, *settings_);
    if (reply.stream && !owner_.may_stream()) {
      count(ec::rate_limited);
      reply = {429,
               "application/json",
               "{\"error\":\"enough clients watch this peer already: close one, or ask again "
               "later\"}\n",
               {}};
    }
    page_response out{static_cast<http::status>(reply.status), request.version()};
    out.set(http::field::content_type, reply.content_type);
    out.set(http::field::cache_control, reply.cache);
    if (asked.member)
      out.set(http::field::authentication_info,
              answer_proof(*settings_->key, page_of(request, *stream_)));
    for (const auto& [name, value] : reply.headers)
      out.set(name, value);
    out.body() = std::move(reply.body);
    out.keep_alive(request.keep_alive());
    bool head = request.method() == http::verb::head;
    settings_->events->http_served(
      std::string{request.target()}, reply.status,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    if (reply.stream)
      return begin_stream(std::move(out), std::move(reply.stream), asked.gzip);
    respond(std::move(out), request.keep_alive(), head);
  }

  void answer_upgrade(const page_request& request) {
    if (!owner_.upgraded) {
      count(ec::unreachable);
      return respond(plain_page(403, "This peer accepts no peers: it is in client mode.\n"), false);
    }
    bool asks_for_link = request.method() == http::verb::get
                         && beast::iequals(request[http::field::upgrade], upgrade_protocol)
                         && request.version() == 11;
    bool too_far =
      settings_->links_encrypt && (settings_->loopback_is_far || leaves_machine(stream_->socket()));
    if (asks_for_link && !too_far)
      return upgrade();
    count(ec::wrong_version);
    auto out =
      plain_page(426, asks_for_link ? "Links between machines are encrypted: this peer was started "
                                      "without --encrypt never.\n"
                                    : std::string{"The upgrade that this port knows is "}
                                        + upgrade_protocol + ".\n");
    if (asks_for_link)
      out.set(http::field::upgrade, upgrade_to_tls);
    respond(std::move(out), false);
  }

  void respond(page_response out, bool keep_alive, bool head = false) {
    out.set(http::field::server, "waggle");
    out.keep_alive(keep_alive);
    out.prepare_payload();
    if (head)
      out.body().clear(); // Content-Length stays that of GET
    auto shared = std::make_shared<page_response>(std::move(out));
    stream_->expires_after(settings_->timeout);
    http::async_write(*stream_, *shared,
                      [me = shared_from_this(), shared](beast::error_code error, std::size_t) {
                        if (error)
                          return;
                        if (!shared->need_eof() && shared->keep_alive())
                          return me->await_next();
                        me->stream_->finish([me](beast::error_code) {});
                      });
  }

  void begin_stream(page_response out, http_stream body, bool gzip) {
    if (gzip) {
      out.set(http::field::content_encoding, "gzip");
      body = [from = std::move(body), begin = gzip_begin()](steady_time now) mutable {
        auto piece = from(now);
        return piece.empty() ? piece : std::exchange(begin, {}) + gzip_piece(piece);
      };
    }
    out.set(http::field::vary, "Accept-Encoding");
    out.set(http::field::server, "waggle");
    out.keep_alive(false);
    auto head = std::make_shared<http::response<http::empty_body>>(std::move(out.base()));
    auto writer = std::make_shared<streamed_body>(
      std::shared_ptr<byte_stream>{shared_from_this(), stream_.get()}, settings_, std::move(body));
    stream_->expires_after(settings_->timeout);
    http::async_write(*stream_, *head, [writer, head](beast::error_code error, std::size_t) {
      if (!error || error == http::error::end_of_stream)
        writer->send_more();
    });
  }

  void upgrade() {
    auto out =
      std::make_shared<http::response<http::empty_body>>(http::status::switching_protocols, 11);
    out->set(http::field::upgrade, upgrade_protocol);
    out->set(http::field::connection, "Upgrade");
    http::async_write(*stream_, *out,
                      [me = shared_from_this(), out](beast::error_code error, std::size_t) {
                        if (error)
                          return;
                        me->owner_.upgraded(std::move(me->stream_->socket()),
                                            beast::buffers_to_string(me->buffer_.data()), nullptr);
                      });
  }

  std::shared_ptr<byte_stream> stream_;
  std::shared_ptr<const http_settings> settings_;
  http_owner owner_;
  beast::flat_buffer buffer_{16_KiB + body_bytes_max};
  std::optional<http::request_parser<http::string_body>> parser_;
};

} // namespace

std::function<void()> serve_http(tcp::socket socket, std::shared_ptr<const http_settings> settings,
                                 http_owner owner) {
  auto made =
    std::make_shared<http_connection>(std::move(socket), std::move(settings), std::move(owner));
  made->begin();
  return [weak = std::weak_ptr<http_connection>{made}] {
    if (auto connection = weak.lock())
      connection->close();
  };
}

} // namespace waggle::net
