#pragma once

#include <gmock/gmock.h>

#include "tests/support/network_test.hpp"
#include "tests/support/rounds.hpp"

namespace waggle::testing {

/// Where nobody listens.
inline const endpoint nowhere{"nowhere", 1};

/// Peers with a switchboard each, on a simulated network.
class Switchboard : public network_test {
protected:
  using network_test::network_test;

  /// A service of `who` that answers and records its calls.
  std::shared_ptr<received_by_service> serve_at(const peer& who, service_topic topic) {
    auto book = std::make_shared<received_by_service>();
    tell(who.board, serve{topic, spawn(recording_service, book)});
    return book;
  }
  std::shared_ptr<received_by_listener> listen_at(const peer& who) {
    auto book = std::make_shared<received_by_listener>();
    tell(who.board, listen_links{spawn(recording_link_listener, book)});
    return book;
  }
  static call_peer ping(const peer_record& whom, milliseconds timeout = 3s) {
    return {whom, wire::dht_ping{}, timeout};
  }
  static notify_peer leave(const peer_record& whom, std::string prefix) {
    return {whom, wire::leave_group{std::move(prefix)}, {}};
  }
  result<peer_answer> ask_peer(const peer& from, const peer& to) {
    return ask_for<peer_answer>(10s, from.board, ping(to.ctx.record));
  }
  std::size_t connections(const peer& who) {
    auto n = exported(*who.ctx.metrics, "waggle_network_connections{");
    return static_cast<std::size_t>(n);
  }
  std::vector<peer_id> connected(const peer& who) {
    std::vector<peer_id> ids;
    for (const auto& p : listen_at(who)->connected)
      ids.push_back(p.id);
    return ids;
  }
};

} // namespace waggle::testing
