#include "runtime/net/http_connection.hpp"

#include <ctime>
#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "runtime/core/bytes.hpp"
#include "runtime/net/gzip.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/http_hosts.hpp"
#include "runtime/net/page_proof.hpp"
#include "runtime/net/page_stream.hpp"
#include "runtime/net/refusals.hpp"
#include "runtime/net/tcp_session.hpp"

namespace waggle::net {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;

/// Of this thread: on a busy machine, a page takes longer, but costs no more.
std::chrono::nanoseconds processor_time() {
  timespec spent{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return std::chrono::seconds{spent.tv_sec} + std::chrono::nanoseconds{spent.tv_nsec};
}

/// A browser names it without weights; whoever refuses it (`gzip;q=0`) is answered as if it were
/// not named.
bool accepts_gzip(beast::string_view header) {
  for (const auto& coding : http::ext_list{header})
    if (beast::iequals(coding.first, "gzip"))
      return coding.second.begin() == coding.second.end();
  return false;
}

class http_connection : public std::enable_shared_from_this<http_connection> {
public:
  http_connection(tcp::socket socket, std::shared_ptr<const http_settings> settings,
                  on_upgrade upgraded, on_stream streaming, std::function<bool()> may_encrypt,
                  std::function<void()> finished)
    : stream_(beast::tcp_stream{std::move(socket)}), settings_(std::move(settings)),
      upgraded_(std::move(upgraded)), streaming_(std::move(streaming)),
      may_encrypt_(std::move(may_encrypt)), finished_(std::move(finished)) {}

  ~http_connection() { finished_(); }

  void close() {
    beast::error_code ignored;
    stream_.tcp.socket().close(ignored);
  }

  /// Peers of other machines and clients of HTTPS begin with TLS, all others with a request.
  void begin() {
    stream_.tcp.expires_after(settings_->timeout);
    read_plain();
  }

  /// The next request of a connection that was answered: a client may wait for long before it, and
  /// close the connection instead.
  void await_next() {
    if (buffer_.size() > 0)
      return read();
    constexpr std::size_t step = 4_KiB;
    stream_.tcp.expires_after(keep_alive_time);
    stream_.async_read_some(buffer_.prepare(step),
                            [me = shared_from_this()](beast::error_code error, std::size_t bytes) {
                              if (error)
                                return;
                              me->buffer_.commit(bytes);
                              me->read();
                            });
  }

  void read() {
    stream_.tcp.expires_after(settings_->timeout);
    parse();
  }

  void parse() {
    parser_.emplace();
    parser_->header_limit(8_KiB);
    parser_->body_limit(body_bytes_max);
    http::async_read(stream_, buffer_, *parser_,
                     [me = shared_from_this()](beast::error_code error, std::size_t) {
                       if (error)
                         return me->reject(error);
                       me->answer();
                     });
  }

private:
  using response = http::response<http::string_body>;

  /// Nothing that is served here reads a request's body.
  static constexpr std::size_t body_bytes_max = 4_KiB;
  static constexpr std::size_t first_bytes_max = 4_KiB;
  /// A client's first message of TLS has some 300 bytes.
  static constexpr std::size_t hello_bytes_max = 16_KiB;
  /// Prometheus asks every 15 to 60 seconds.
  static constexpr auto keep_alive_time = std::chrono::seconds{75};

  void reject(beast::error_code error) {
    if (error == beast::error::timeout)
      return count(ec::timeout);
    if (stream_.why().code != ec::none)
      return count(stream_.why().code);
    if (error == http::error::end_of_stream
        || error.category() != http::make_error_code(http::error::bad_method).category())
      return; // the client has left, or the socket failed
    bool long_header = error == http::error::header_limit;
    bool long_body = error == http::error::body_limit;
    count(long_header || long_body ? ec::oversize : ec::malformed);
    respond(plain(long_header ? 431
                  : long_body ? 413
                              : 400,
                  "This port speaks HTTP/1.1 and the waggle protocol; that was neither.\n"),
            false);
  }

  [[nodiscard]] byte_span bytes_read() const {
    auto data = buffer_.cdata();
    return {static_cast<const std::byte*>(data.data()), data.size()};
  }

  /// The client's first message is here, or its beginning.
  void begin_tls() {
    if (!settings_->tls)
      return count(ec::wrong_version);
    if (!channel_ && !may_encrypt_())
      return count(ec::rate_limited);
    if (!channel_)
      channel_ = std::make_unique<tls_channel>(*settings_->tls, false);
    tls_bytes_ += buffer_.size();
    channel_->arrived(bytes_read());
    buffer_.consume(buffer_.size());
    auto ready = channel_->begin();
    if (!ready)
      return end_with(ready.error().code);
    if (*ready && channel_->is_for_pages()) {
      stream_.encrypt(std::move(channel_));
      return parse();
    }
    if (*ready && !upgraded_) // this peer is a client
      return count(ec::unreachable);
    if (*ready) {
      stream_.tcp.expires_never();
      return upgraded_(stream_.tcp.release_socket(), {}, std::move(channel_));
    }
    if (tls_bytes_ > hello_bytes_max)
      return count(ec::oversize);
    send_output([me = shared_from_this()] { me->read_plain(); });
  }

  void read_plain() {
    stream_.tcp.async_read_some(
      buffer_.prepare(first_bytes_max),
      [me = shared_from_this()](beast::error_code error, std::size_t bytes) {
        if (error)
          return me->reject(error);
        me->buffer_.commit(bytes);
        if (me->channel_ || me->bytes_read().front() == tls_first_byte)
          return me->begin_tls();
        me->parse();
      });
  }

  /// What the channel has to send before it has begun: a reason, or a wish for other parameters.
  void send_output(std::function<void()> then) {
    auto out = std::make_shared<std::vector<std::byte>>(channel_->take_output());
    if (out->empty())
      return then();
    boost::asio::async_write(
      stream_.tcp, boost::asio::buffer(*out),
      [me = shared_from_this(), out, then = std::move(then)](beast::error_code error, std::size_t) {
        if (!error)
          then();
      });
  }

  /// Sends the reason to a client that speaks TLS, and ends the connection.
  void end_with(ec reason) {
    count(reason);
    send_output([me = shared_from_this()] {
      beast::error_code ignored;
      me->stream_.tcp.socket().shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  void count(ec reason) { settings_->events->refused(reason); }

  static response plain(unsigned status, std::string text) {
    response out{static_cast<http::status>(status), 11};
    out.set(http::field::content_type, "text/plain; charset=utf-8");
    out.body() = std::move(text);
    return out;
  }

  void answer() {
    auto request = parser_->release();
    if (!stream_.tls() && http::token_list{request[http::field::connection]}.exists("upgrade")) {
      if (!upgraded_) {
        count(ec::unreachable);
        return respond(plain(403, "This peer accepts no peers: it is in client mode.\n"), false);
      }
      if (request.method() == http::verb::get
          && beast::iequals(request[http::field::upgrade], upgrade_protocol)
          && request.version() == 11) {
        if (settings_->links_encrypt
            && (settings_->loopback_is_far || leaves_machine(stream_.tcp.socket())))
          return respond_that_peers_encrypt();
        return upgrade();
      }
      count(ec::wrong_version);
      return respond(
        plain(426, std::string{"The upgrade that this port knows is "} + upgrade_protocol + ".\n"),
        false);
    }
    auto began = std::chrono::steady_clock::now();
    bool gzip = accepts_gzip(request[http::field::accept_encoding]);
    bool member = is_member(request);
    auto reply = answer_to({std::string{request.method_string()}, std::string{request.target()},
                            std::string{request[http::field::host]}, from_this_machine(),
                            std::string{request["Last-Event-ID"]}, is_cross_origin(request), gzip,
                            std::string{request[http::field::if_none_match]}, member});
    if (reply.stream && !(streaming_ && streaming_())) {
      count(ec::rate_limited);
      reply = {429,
               "application/json",
               "{\"error\":\"enough clients watch this peer already: close one, or ask again "
               "later\"}\n",
               {}};
    }
    response out{static_cast<http::status>(reply.status), request.version()};
    out.set(http::field::content_type, reply.content_type);
    out.set(http::field::cache_control, reply.cache);
    if (member)
      out.set(http::field::authentication_info, answer_proof(*settings_->key, page_of(request)));
    for (const auto& [name, value] : reply.headers)
      out.set(name, value);
    out.body() = std::move(reply.body);
    out.keep_alive(request.keep_alive());
    bool head = request.method() == http::verb::head;
    settings_->events->http_served(
      std::string{request.target()}, reply.status,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    if (reply.stream)
      return begin_stream(std::move(out), std::move(reply.stream), gzip);
    respond(std::move(out), request.keep_alive(), head);
  }

  void respond_that_peers_encrypt() {
    count(ec::wrong_version);
    auto out = plain(426, "Links between machines are encrypted: this peer was started without "
                          "--encrypt never.\n");
    out.set(http::field::upgrade, upgrade_to_tls);
    respond(std::move(out), false);
  }

  /// Browsers say for which page they ask. Others need not: whoever can open a socket can also
  /// leave a header out.
  template <class Request>
  static bool is_cross_origin(const Request& request) {
    auto site = request["Sec-Fetch-Site"];
    if (!site.empty() && site != "same-origin" && site != "none")
      return true;
    std::string_view origin{request[http::field::origin].data(),
                            request[http::field::origin].size()};
    auto host = request[http::field::host];
    return !origin.empty()
           && origin.substr(std::min(origin.find("//") + 2, origin.size()))
                != std::string_view{host.data(), host.size()};
  }

  /// Only over TLS: then it is good for this connection.
  [[nodiscard]] bool is_member(const auto& request) const {
    auto shown = request[http::field::authorization];
    return settings_->key && stream_.tls()
           && proves_page(*settings_->key, page_of(request), {shown.data(), shown.size()});
  }
  [[nodiscard]] page_of_channel page_of(const auto& request) const {
    return {stream_.tls()->binding(), std::string{request.target()}};
  }

  bool from_this_machine() {
    beast::error_code error;
    auto from = stream_.tcp.socket().remote_endpoint(error).address();
    return !error && unmapped(from).is_loopback() && !settings_->loopback_is_far;
  }

  http_response answer_to(const http_request& request) {
    constexpr auto text = "text/plain; charset=utf-8";
    if (!settings_->handler)
      return {404, text, "Nothing is served here.\n", {}};
    if (!answers_host(request, settings_->own_hosts)) {
      count(ec::not_owner);
      return {421,
              text,
              "This peer does not know itself by the name " + host_name(request.host)
                + ": ask for its address.\n",
              {}};
    }
    if (request.target == "/healthz" || request.target == "/readyz")
      return settings_->handler(request);
    if (settings_->key && !settings_->open_pages && !request.local && !request.member
        && request.target.substr(0, request.target.find('?')) != "/metrics") {
      count(ec::not_owner);
      return {403,
              "application/json",
              "{\"error\":\"this run has a key, which other machines have to know to see this: "
              "waggle status HOST:PORT --swarm-key FILE, or start that peer with --pages all\"}\n",
              {}};
    }
    if (settings_->answering->in_debt(std::chrono::steady_clock::now())) {
      count(ec::rate_limited);
      return {
        429, text, "This peer answers too many requests already; ask again in a second.\n", {}};
    }
    auto began = processor_time();
    auto reply = settings_->handler(request);
    if (request.gzip)
      compress(reply);
    settings_->answering->owe(std::chrono::duration_cast<work>(processor_time() - began));
    return reply;
  }

  void respond(response out, bool keep_alive, bool head = false) {
    out.set(http::field::server, "waggle");
    out.keep_alive(keep_alive);
    out.prepare_payload();
    if (head)
      out.body().clear(); // Content-Length stays that of GET
    auto shared = std::make_shared<response>(std::move(out));
    stream_.tcp.expires_after(settings_->timeout);
    http::async_write(stream_, *shared,
                      [me = shared_from_this(), shared](beast::error_code error, std::size_t) {
                        if (error)
                          return;
                        if (!shared->need_eof() && shared->keep_alive())
                          return me->await_next();
                        me->stream_.finish([me](beast::error_code, std::size_t) {});
                      });
  }

  /// The body ends with the connection.
  void begin_stream(response out, http_stream body, bool gzip) {
    body_ = std::move(body);
    if (gzip) {
      out.set(http::field::content_encoding, "gzip");
      body_ = [from = std::move(body_), begin = gzip_begin()](steady_time now) mutable {
        auto piece = from(now);
        return piece.empty() ? piece : std::exchange(begin, {}) + gzip_piece(piece);
      };
    }
    out.set(http::field::vary, "Accept-Encoding");
    out.set(http::field::server, "waggle");
    out.keep_alive(false);
    auto head = std::make_shared<http::response<http::empty_body>>(std::move(out.base()));
    stream_.tcp.expires_after(settings_->timeout);
    http::async_write(stream_, *head,
                      [me = shared_from_this(), head](beast::error_code error, std::size_t) {
                        if (!error || error == http::error::end_of_stream)
                          me->send_more();
                      });
  }

  /// One write is under way at a time, and between two is a pause: that bounds what a client costs.
  void send_more() {
    auto now = std::chrono::steady_clock::now();
    piece_.clear();
    if (!settings_->answering->in_debt(now)) {
      auto began = processor_time();
      piece_ = body_(now);
      settings_->answering->owe(std::chrono::duration_cast<work>(processor_time() - began));
    }
    if (piece_.empty())
      return pause();
    stream_.tcp.expires_after(settings_->stream_timeout);
    boost::asio::async_write(stream_, boost::asio::buffer(piece_),
                             [me = shared_from_this()](beast::error_code error, std::size_t) {
                               if (!error)
                                 me->pause();
                             });
  }

  void pause() {
    constexpr auto between_frames = std::chrono::milliseconds{100};
    stream_.tcp.expires_never();
    pause_.expires_after(between_frames);
    pause_.async_wait([me = shared_from_this()](beast::error_code error) {
      // Otherwise, a stream that has nothing to send keeps its place.
      if (!error && me->stream_.tcp.socket().is_open() && !me->stream_.is_over())
        me->send_more();
    });
  }

  void upgrade() {
    auto out =
      std::make_shared<http::response<http::empty_body>>(http::status::switching_protocols, 11);
    out->set(http::field::upgrade, upgrade_protocol);
    out->set(http::field::connection, "Upgrade");
    http::async_write(stream_.tcp, *out,
                      [me = shared_from_this(), out](beast::error_code error, std::size_t) {
                        if (error)
                          return;
                        me->stream_.tcp.expires_never();
                        me->upgraded_(me->stream_.tcp.release_socket(),
                                      beast::buffers_to_string(me->buffer_.data()), nullptr);
                      });
  }

  page_stream stream_;
  std::shared_ptr<const http_settings> settings_;
  on_upgrade upgraded_;
  on_stream streaming_;
  std::function<bool()> may_encrypt_;
  std::unique_ptr<tls_channel> channel_; // of a client whose first message is arriving
  std::size_t tls_bytes_ = 0;            // of it
  std::function<void()> finished_;
  http_stream body_; // of a stream that has begun
  std::string piece_;
  boost::asio::steady_timer pause_{stream_.get_executor()};
  beast::flat_buffer buffer_{16_KiB + body_bytes_max};
  std::optional<http::request_parser<http::string_body>> parser_;
};

} // namespace

std::function<void()> serve_http(tcp::socket socket, std::shared_ptr<const http_settings> settings,
                                 on_upgrade upgraded, on_stream streaming,
                                 std::function<bool()> may_encrypt,
                                 std::function<void()> finished) {
  auto made = std::make_shared<http_connection>(std::move(socket), std::move(settings),
                                                std::move(upgraded), std::move(streaming),
                                                std::move(may_encrypt), std::move(finished));
  made->begin();
  return [weak = std::weak_ptr<http_connection>{made}] {
    if (auto connection = weak.lock())
      connection->close();
  };
}

} // namespace waggle::net
