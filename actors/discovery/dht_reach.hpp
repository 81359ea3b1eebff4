#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/discovery/dht_joining.hpp"
#include "runtime/net/reachability.hpp"

namespace waggle {

struct reach_config {
  net::reachability::options inquiries;
  net::dial_back_limits::options limits; // of what others have us dial
  /// How long one dial back may take.
  milliseconds dial_timeout{3'000};
  /// Becomes a client if no other peer reaches it. Otherwise it only says so.
  bool may_become_client = false;
  /// Reads at which addresses this peer listens now. Empty: they never change.
  std::function<std::vector<endpoint>()> read_addresses;
  milliseconds read_addresses_every{10'000};
  /// Asks our router to pass connections on to this port, and calls `told` on any thread with
  /// where, or why not, whenever that changes. Empty: no router is asked.
  std::function<void(std::uint16_t port, std::function<void(const result<endpoint>&)> told)>
    map_port;
  /// Takes what this peer announces in handshakes from now on. May be empty.
  std::function<void(peer_record)> announce;
};

/// Attempts to reach peers that dialled us: so few that dials of our own are never refused.
inline constexpr net::dial_back_limits::options tries_max{
  .of_host_max = 64, .all_max = 128, .within = 10'000ms};

/// The part of the DHT router that knows how other peers reach this one: looks again at which
/// addresses it listens, finds out whether others reach it there, dials others back that ask the
/// same, and tries to reach those that dialled us. A trainer that nobody reaches, or that has no
/// link with a member of its group, becomes a client (node_context::is_client): otherwise each
/// round of two such peers would wait until one of them is given up. Has the lifetime of the actor
/// `self`.
class dht_reach {
public:
  /// `changed` takes the notice for the operator whenever it changes; empty: others reach us.
  /// `reached` takes a peer that we reached at an address that it announces. `moved` is called when
  /// others reach us elsewhere than before.
  dht_reach(dht_router_base* self, node_context ctx, reach_config config,
            switchboard_actor switchboard, std::function<void(notice)> changed,
            std::function<void(const peer_id&)> reached, std::function<void()> moved);
  dht_reach(const dht_reach&) = delete;
  dht_reach& operator=(const dht_reach&) = delete;

  /// Looks at its addresses, and begins what follows.
  void begin() { go_on(); }
  /// A dial of ours failed: perhaps the network is another one.
  void on_dial_failed();
  void on_connected(const peer_id& peer);
  /// The same, by punching: it says nothing about how others reach us.
  void on_punched(const peer_id& peer);
  /// Punching has brought no link with this peer.
  void on_missing(const peer_id& peer);
  void on_disconnected(const peer_id& peer);
  void on_mapped(const port_mapped& msg);
  void on_due(const inquiry_due& msg);
  void on_unlinked(const member_unlinked& msg);
  /// Dials the peer that asks at the host from which we see it, never at another one.
  caf::result<outbound_answer> dial_back(const wire::dial_back& wanted, const inbound_call& call);
  /// Whether this peer dials one that `by` has told it of: only if it has dialled `by`, as it asks
  /// only such peers whom they know, and has few links.
  [[nodiscard]] bool may_follow(const peer_id& by);
  /// Dials the addresses that a peer that dialled us announces, one after the other, unless that
  /// was done lately. Until it was reached others are not told of it, but for those behind its
  /// router (dht_router).
  void try_to_reach(const peer_record& peer);
  /// Calls `then` when the first of these dials has ended; at once if none is under way.
  void when_tried(const peer_id& peer, std::function<void()> then);
  /// Releases the handles that it holds.
  void on_exit();

private:
  [[nodiscard]] steady_time now() const { return self_->clock().now(); }
  [[nodiscard]] std::vector<endpoint> addresses() const;
  void go_on();
  void look_soon();
  void map_port();
  void show_addresses(std::vector<endpoint> found);
  void look_at_addresses();
  void announce();
  void ask(const peer_id& peer);
  [[nodiscard]] bool was_tried(const peer_record& peer) const;
  void try_next(const peer_record& peer, std::deque<endpoint> left);
  void settle();
  [[nodiscard]] notice seen() const;

  dht_router_base* self_;
  node_context ctx_;
  reach_config config_;
  switchboard_actor switchboard_;
  std::function<void(notice)> changed_;
  std::function<void(const peer_id&)> reached_;
  std::function<void()> moved_;
  net::reachability reach_;
  net::dial_back_limits limits_;
  net::dial_back_limits tries_{tries_max};
  struct attempt {
    steady_time when;
    std::vector<endpoint> addresses; // that the peer announced
  };
  std::map<peer_id, attempt> tried_;                              // lately; bounded by tries_max
  std::map<peer_id, std::vector<std::function<void()>>> waiting_; // until the peer was tried
  steady_time look_due_;                                          // at the addresses
  steady_time looked_;
  std::optional<steady_time> due_at_; // of the inquiry_due that was set last, until it arrives
  std::uint64_t inquiries_ = 0;
  notice told_; // the last one
  bool asked_router_ = false;
  std::optional<endpoint> mapped_;      // by our router
  std::optional<std::string> unmapped_; // why not, if it was asked
  bool announces_mapped_ = false;       // others have reached us since then
  bool mapped_alone_ = false;           // of the last inquiry
};

} // namespace waggle
