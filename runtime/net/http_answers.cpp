#include "runtime/net/http_answers.hpp"

#include <ctime>
#include <utility>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/rfc7230.hpp>

#include "runtime/net/gzip.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/http_hosts.hpp"

namespace waggle::net {

namespace beast = boost::beast;
namespace http = beast::http;

namespace {

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

void owe(std::chrono::nanoseconds began, const http_settings& settings) {
  settings.answering->owe(std::chrono::duration_cast<work>(processor_time() - began));
}

/// Browsers say for which page they ask. Others need not: whoever can open a socket can also
/// leave a header out.
bool is_cross_origin(const page_request& request) {
  auto site = request["Sec-Fetch-Site"];
  if (!site.empty() && site != "same-origin" && site != "none")
    return true;
  std::string_view origin{request[http::field::origin].data(), request[http::field::origin].size()};
  auto host = request[http::field::host];
  return !origin.empty()
         && origin.substr(std::min(origin.find("//") + 2, origin.size()))
              != std::string_view{host.data(), host.size()};
}

/// Only over TLS: then it is good for this connection.
bool is_member(const page_request& request, const byte_stream& stream,
               const http_settings& settings) {
  auto shown = request[http::field::authorization];
  return settings.key && stream.tls()
         && proves_page(*settings.key, page_of(request, stream), {shown.data(), shown.size()});
}

bool from_this_machine(const byte_stream& stream, const http_settings& settings) {
  beast::error_code error;
  auto from = stream.socket().remote_endpoint(error).address();
  return !error && unmapped(from).is_loopback() && !settings.loopback_is_far;
}

} // namespace

page_response plain_page(unsigned status, std::string text) {
  page_response out{static_cast<http::status>(status), 11};
  out.set(http::field::content_type, "text/plain; charset=utf-8");
  out.body() = std::move(text);
  return out;
}

page_of_channel page_of(const page_request& request, const byte_stream& stream) {
  return {stream.tls()->binding(), std::string{request.target()}};
}

http_request described(const page_request& request, const byte_stream& stream,
                       const http_settings& settings) {
  return {std::string{request.method_string()},
          std::string{request.target()},
          std::string{request[http::field::host]},
          from_this_machine(stream, settings),
          std::string{request["Last-Event-ID"]},
          is_cross_origin(request),
          accepts_gzip(request[http::field::accept_encoding]),
          std::string{request[http::field::if_none_match]},
          is_member(request, stream, settings)};
}

http_response answer_to(const http_request& request, const http_settings& settings) {
  constexpr auto text = "text/plain; charset=utf-8";
  if (!settings.handler)
    return {404, text, "Nothing is served here.\n", {}};
  if (!answers_host(request, settings.own_hosts)) {
    settings.events->refused(ec::not_owner);
    return {421,
            text,
            "This peer does not know itself by the name " + host_name(request.host)
              + ": ask for its address.\n",
            {}};
  }
  if (request.target == "/healthz" || request.target == "/readyz")
    return settings.handler(request);
  if (settings.key && !settings.open_pages && !request.local && !request.member
      && request.target.substr(0, request.target.find('?')) != "/metrics") {
    settings.events->refused(ec::not_owner);
    return {403,
            "application/json",
            "{\"error\":\"this run has a key, which other machines have to know to see this: "
            "waggle status HOST:PORT --swarm-key FILE, or start that peer with --pages all\"}\n",
            {}};
  }
  if (settings.answering->in_debt(std::chrono::steady_clock::now())) {
    settings.events->refused(ec::rate_limited);
    return {429, text, "This peer answers too many requests already; ask again in a second.\n", {}};
  }
  auto began = processor_time();
  auto reply = settings.handler(request);
  if (request.gzip)
    compress(reply);
  owe(began, settings);
  return reply;
}

std::string next_piece(http_stream& body, const http_settings& settings) {
  auto now = std::chrono::steady_clock::now();
  if (settings.answering->in_debt(now))
    return {};
  auto began = processor_time();
  auto piece = body(now);
  owe(began, settings);
  return piece;
}

} // namespace waggle::net
