#pragma once

// Internal to runtime/net: resolves host names without blocking the I/O thread.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/steady_timer.hpp>

#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"

namespace waggle::net {

using host_addresses = std::vector<boost::asio::ip::address>;

/// Returns the addresses of a name, at least one, or fails with ec::unreachable. Replaceable in
/// tests. May block, even forever: each call has a thread of its own that is never joined. So the
/// function must own everything that it uses.
using host_lookup = std::function<result<host_addresses>(const std::string& host)>;

host_lookup system_lookup();

/// The first `count_max` of `found`, each once, in the order in which to dial them: IPv6 and IPv4
/// in turn, so that a family that does not work here delays only one attempt (RFC 8305 §4).
host_addresses in_dialling_order(const host_addresses& found, std::size_t count_max);

/// Resolves host names concurrently: a lookup that hangs does not delay other names.
///
/// getaddrinfo cannot be cancelled, and it may take half a minute if a name server is down. So
/// each name has a thread while it is looked up, at most `names_max` of them. A second request for
/// the same name waits for the same lookup. All members are called on the io_context's only thread,
/// or after that thread has ended.
class name_resolver {
public:
  using on_resolved = std::function<void(const result<host_addresses>&)>;

  /// An empty `lookup` means the system's resolver.
  name_resolver(boost::asio::io_context& io, host_lookup lookup, std::size_t names_max = 16);
  ~name_resolver() { stop(); }
  name_resolver(const name_resolver&) = delete;
  name_resolver& operator=(const name_resolver&) = delete;

  /// Calls `done` once, later, on the I/O thread. Fails with ec::unreachable, with ec::overloaded
  /// if too many other names are being looked up, or with ec::timeout; the lookup then goes on.
  void resolve(const std::string& host, milliseconds timeout, on_resolved done);
  /// No callback is called any more. Does not wait for lookups.
  void stop();

private:
  /// Where threads store their results; it lives as long as the last of them.
  struct inbox;
  struct request {
    on_resolved done; // empty once it was called
    boost::asio::steady_timer deadline;
  };

  void deliver(const std::string& host, const result<host_addresses>& found);

  boost::asio::io_context& io_;
  host_lookup lookup_;
  std::size_t names_max_;
  std::shared_ptr<inbox> inbox_;
  std::map<std::string, std::vector<std::shared_ptr<request>>> pending_; // one thread per name
};

} // namespace waggle::net
