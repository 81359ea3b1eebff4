#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/peer_link.hpp"

namespace waggle {

struct switchboard_config {
  /// How long dialling one address may take. Raise it on links with seconds of delay.
  milliseconds dial_timeout{5'000};
  /// Links at once, both directions; further inbound ones are closed with ec::overloaded.
  std::size_t links_max = 256;
  /// Links with one peer: two that were dialled at the same time, and some that are about to end.
  std::size_t links_per_peer_max = 4;
  /// A second process with the identity of a connected peer replaces it if the connected one does
  /// not answer within this time. Raise it if living peers are replaced.
  milliseconds identity_timeout{1'000};
  /// Messages that wait for a dial to one peer; more are refused (calls) or dropped (events).
  std::size_t waiting_max = 1024;
  link_config link;
};

/// Command: send the messages of peers about `topic` to `service` from now on.
struct serve {
  service_topic topic = service_topic::dht;
  service_actor service;
  /// Not empty: only matchmaking messages with this prefix.
  std::string prefix{};
};
/// Command: notify `listener` when peers connect and disconnect, and of those already connected at
/// once.
struct listen_links {
  link_listener_actor listener;
};
/// Event: a peer connected to us (sent by the transport's accept callback).
struct link_arrived {
  std::shared_ptr<net::link> link;
};
/// Command: send a goodbye to all peers and close all links.
struct hang_up {};
/// To itself: the transport has finished a dial.
struct dial_ended {
  std::uint64_t dial = 0;
  std::shared_ptr<net::link> link; // null: failed
  failure why;
};
/// To itself: calls that wait for this dial may have timed out.
struct dial_overdue {
  std::uint64_t dial = 0;
};

struct switchboard_state {
  static inline const char* name = "switchboard";

  struct connection {
    std::uint64_t number = 0;
    std::shared_ptr<net::link> link;
    peer_link_actor actor;
    bool outbound = false;
  };
  struct peer_entry {
    peer_record record;
    std::uint64_t instance = 0;          // of its process; 0: unknown
    std::vector<connection> connections; // in order of arrival; never empty
    /// Link of a second process with this identity. Not null: the connected process is being asked
    /// whether it is alive.
    std::shared_ptr<net::link> newcomer;
  };
  /// A call that waits for a dial.
  struct waiting_call {
    caf::typed_response_promise<peer_answer> promise;
    wire::request what;
    steady_time deadline;
  };
  struct waiting_event {
    wire::event what;
    payload body;
  };
  struct dial {
    peer_id peer;                   // zero: connect_address
    std::deque<endpoint> addresses; // still to try
    endpoint current;
    steady_time deadline; // the latest deadline of all waiting callers
    std::vector<std::variant<waiting_call, waiting_event>> waiting; // in order
    std::vector<caf::typed_response_promise<peer_connected>> connects;
  };

  std::shared_ptr<net::transport> transport;
  service_table services;
  std::vector<link_listener_actor> listeners;
  std::map<peer_id, peer_entry> peers;
  std::map<std::uint64_t, dial> dials;
  std::map<peer_id, std::uint64_t> dialling;
  std::uint64_t numbers = 0;           // links and dials
  std::set<peer_id> shared_identities; // that were logged; bounded by links_max
  bool hung_up = false;
};

using switchboard_impl =
  switchboard_actor::extend<caf::reacts_to<serve>, caf::reacts_to<listen_links>,
                            caf::reacts_to<link_arrived>, caf::reacts_to<hang_up>,
                            caf::reacts_to<dial_ended>, caf::reacts_to<dial_overdue>,
                            caf::reacts_to<link_down>>;

/// Holds the links to all peers. A peer has one entry, however many connections it has. Of two
/// connections that both sides dialled at the same time, both sides use the one dialled by the
/// smaller id, and the other one ends when it is unused (link_config::unused_for). A newer
/// connection in the same direction replaces an older one in the same way.
///
/// Two processes with one identity are either one peer that was restarted before its old links were
/// given up, or two that run side by side. The connected process is asked over its link whether it
/// is alive: if it answers, the newcomer is refused, otherwise the newcomer replaces it.
switchboard_impl::behavior_type
switchboard(switchboard_impl::stateful_pointer<switchboard_state> self, node_context ctx,
            switchboard_config config, std::shared_ptr<net::transport> transport);

} // namespace waggle

WAGGLE_LOCAL(serve)
WAGGLE_LOCAL(listen_links)
WAGGLE_LOCAL(link_arrived)
WAGGLE_LOCAL(hang_up)
WAGGLE_LOCAL(dial_ended)
WAGGLE_LOCAL(dial_overdue)
