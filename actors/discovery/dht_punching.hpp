#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/discovery/dht_joining.hpp"
#include "runtime/net/punching.hpp"
#include "runtime/net/reachability.hpp"

namespace waggle {

struct punch_config {
  net::punch_broker::options broker;
  net::dial_back_limits::options asked{16, 1'024}; // to bring others together, of each host
  net::dial_back_limits::options limits;           // of what others have us dial
  /// Between two questions for the same peer: nobody may be linked with both yet.
  milliseconds ask_again{60'000};
  std::size_t asked_max = 4; // peers that may bring us together, per attempt
  milliseconds request_timeout{2'000};
  /// How long both ends dial. TCP repeats a lost packet after 1 s and 3 s.
  milliseconds dial_timeout{4'000};
  /// Dials from one of our links' ports (net::dial_target::from). The link arrives at the
  /// switchboard; `done` gets ec::none or why there will be none. Empty: this peer accepts no
  /// links.
  std::function<void(const net::dial_target&, milliseconds timeout,
                     std::function<void(failure)> done)>
    dial;
};

/// The part of the DHT router that passes routers: of two members that do not reach each other one
/// asks a peer that both have dialled, which tells both when and where to dial (punching). Has the
/// lifetime of the actor `self`.
class dht_punching {
public:
  /// `missed` takes a peer with which punching has brought no link. `told` takes what came of each
  /// of the last attempts, whenever one has ended.
  dht_punching(dht_router_base* self, node_context ctx, punch_config config,
               switchboard_actor switchboard, std::function<void(const peer_id&)> missed,
               std::function<void(std::vector<notice>)> told);
  dht_punching(const dht_punching&) = delete;
  dht_punching& operator=(const dht_punching&) = delete;

  /// There is no link with this member of our run.
  void begin(const peer_id& peer);
  /// Tells the peer that asks, and the one that it names, to dial each other.
  caf::result<outbound_answer> introduce(const wire::introduce& wanted, const inbound_call& call);
  /// Dials if the peer `by` may have us do it: only if we have dialled it, and never another kind
  /// of address than its own.
  void on_note(const wire::punch_note& note, const peer_id& by);
  void on_due(const punch_due& msg);
  void on_ended(const punch_ended& msg);
  /// Whether this link came about by punching.
  bool on_connected(const peer_id& peer);
  void on_disconnected(const peer_id& peer) { met_.erase(peer); }
  /// Whether the link with this peer did: then we have not chosen it, and others cannot dial it,
  /// whichever end has dialled.
  [[nodiscard]] bool has_met(const peer_id& peer) const { return met_.contains(peer); }
  /// Releases the handles that it holds.
  void on_exit();

private:
  [[nodiscard]] steady_time now() const { return self_->clock().now(); }
  [[nodiscard]] std::optional<net::punch_end> seen(const peer_id& peer) const;
  void ask(const peer_id& peer, std::deque<peer_id> others);
  void failed(const peer_id& peer, const std::string& why);
  void tell(const peer_id& peer, notice what);

  dht_router_base* self_;
  node_context ctx_;
  punch_config config_;
  switchboard_actor switchboard_;
  std::function<void(const peer_id&)> missed_;
  std::function<void(std::vector<notice>)> told_;
  net::punch_broker broker_;
  net::dial_back_limits questions_, limits_;
  net::recent_pairs asked_;
  net::recent_pairs punched_{net::punched_again};
  std::map<peer_id, peer_id> under_way_;            // and who has us dial; bounded by limits_
  std::set<peer_id> met_;                           // linked now; bounded by the links
  std::deque<std::pair<peer_id, notice>> outcomes_; // of the last peers
};

} // namespace waggle
