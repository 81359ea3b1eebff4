#pragma once

// Internal to runtime/net: the HTTP side of the port.

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "runtime/core/time.hpp"
#include "runtime/crypto/run_secret.hpp"
#include "runtime/net/byte_stream.hpp"
#include "runtime/net/http.hpp"
#include "runtime/net/link_budget.hpp"
#include "runtime/net/net_events.hpp"

namespace waggle::net {

constexpr const char* upgrade_protocol = "waggle/1";

/// RFC 2817: what a peer of another machine has to do first.
constexpr const char* upgrade_to_tls = "TLS/1.3";

struct http_settings {
  http_handler handler;
  std::shared_ptr<const net_events> events;
  milliseconds timeout{10'000};
  /// A client of a stream that takes nothing for this long is closed. A browser that was stopped
  /// for a minute finds it open.
  milliseconds stream_timeout{90'000};
  std::shared_ptr<const tls_context> tls; // null: neither encrypted links nor HTTPS
  /// Peers of other machines have to begin with TLS.
  bool links_encrypt = false;
  bool loopback_is_far = false; // as in tcp_transport_config
  /// Of a run that has a key: other machines have to show over TLS that they know it to see more
  /// than health and metrics, unless `open_pages`.
  std::shared_ptr<const run_secret> key{};
  bool open_pages = false;
  std::set<std::string> own_hosts; // names of the operator for this peer (http_hosts.hpp)
  /// Time spent on pages that cost something, which are all but the two health pages. Over it they
  /// are refused with status 429, so that a client that asks all the time does not take a core from
  /// the training. A scrape of all metrics takes 1 to 2 ms.
  std::shared_ptr<work_bucket> answering = std::make_shared<work_bucket>(work{250'000});
};

/// Takes the socket of a peer, and the bytes that followed the request for the upgrade; or its
/// channel, whose output is not sent yet.
using on_upgrade =
  std::function<void(tcp::socket, std::string early, std::unique_ptr<tls_channel>)>;

struct http_owner {
  on_upgrade upgraded;               // may be empty: no peers
  std::function<bool()> may_stream;  // whether another stream may begin (http_response::stream)
  std::function<bool()> may_encrypt; // whether there is time for the work of a TLS handshake
  std::function<void()> finished;    // however it ends
};

/// Serves HTTP on an accepted socket until it is closed, fails, is idle for too long or is
/// upgraded, or begins TLS as a peer. The result closes the connection, if it is still there.
std::function<void()> serve_http(tcp::socket socket, std::shared_ptr<const http_settings> settings,
                                 http_owner owner);

/// Requests the upgrade on a connected socket. Has no deadline of its own: close the socket. `done`
/// gets the early bytes, or the reason of the failure.
void request_upgrade(std::shared_ptr<byte_stream> stream, const std::string& host,
                     std::function<void(failure, std::string early)> done);

} // namespace waggle::net
