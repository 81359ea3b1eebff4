#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/dht/bootstrap.hpp"
#include "runtime/net/transport.hpp"

namespace waggle {

/// To itself: a search has timed out.
struct search_expired {
  std::uint64_t search = 0;
};
/// To itself: an address may be due to be dialled.
struct retry_bootstrap {
  std::uint64_t number = 0; // only the retry that was set last counts
};
/// To itself: the outcome of resolving a name.
struct name_resolved {
  endpoint name;
  result<std::vector<endpoint>> found;
};
/// To itself: it may be time to ask whether others reach us.
struct inquiry_due {
  std::uint64_t number = 0; // only the one that was set last counts
};
/// To itself: we may dial a peer that another one has named to us.
struct named_peer {
  peer_record peer;
};
/// To itself: the moment at which to dial a peer that dials us, from here.
struct punch_due {
  peer_id peer;
  endpoint from;
  endpoint where;
};
/// To itself: such a dial has ended; ec::none: with a connection.
struct punch_ended {
  peer_id peer;
  failure why;
};
/// To itself: where our router has mapped our port, or why it has not.
struct port_mapped {
  result<endpoint> where;
};
/// To itself: periodic upkeep.
struct table_tick {};

using joining_actor = caf::typed_actor<caf::reacts_to<name_resolved>>;
using punching_actor = caf::typed_actor<caf::reacts_to<punch_ended>, caf::reacts_to<port_mapped>>;
using dht_router_base = wired_dht_router_actor::extend<
  caf::reacts_to<search_expired>, caf::reacts_to<retry_bootstrap>, caf::reacts_to<inquiry_due>,
  caf::reacts_to<named_peer>, caf::reacts_to<punch_due>,
  caf::reacts_to<table_tick>>::extend_with<joining_actor>::extend_with<punching_actor>::base;

// -- joining -------------------------------------------------------------------------------------

struct joining_config {
  /// When addresses are dialled again, and how many lost peers are remembered.
  bootstrap::options pauses;
  /// How long a dialled address may take to answer. If packets are lost, TCP repeats the first one
  /// after 1 s and 3 s; dialling again is better than waiting for its next attempt after 7 s.
  milliseconds dial_timeout{4'000};
  /// Resolves names (net::transport::resolve). Empty: each address stands for itself.
  std::function<void(const endpoint&, milliseconds timeout, net::on_resolved)> resolve;
};

/// The part of the DHT router that joins the run, and rejoins it: dials the addresses that
/// `bootstrap` returns, when they are due, and notifies listeners of the status. Has the lifetime
/// of the actor `self`.
class dht_joining {
public:
  /// `dialled` is called whenever a dial of an address has ended: with a link or not.
  dht_joining(dht_router_base* self, node_context ctx, joining_config config,
              switchboard_actor switchboard, std::function<void(bool reached)> dialled);
  dht_joining(const dht_joining&) = delete;
  dht_joining& operator=(const dht_joining&) = delete;

  void begin(const bootstrap_from& msg);
  void subscribe(const dht_listener_actor& listener);
  void on_down(const caf::actor_addr& source);
  void on_retry(const retry_bootstrap& msg);
  void on_resolved(const name_resolved& msg);
  /// Listeners are notified that others do not reach us; empty: that they do.
  void show_reach(notice what);
  void show_punches(std::vector<notice> all);
  void on_exit();

  /// True if this peer joined the run by this link.
  bool on_connected(const peer_record& peer);
  void on_disconnected(const peer_disconnected& msg);

  /// The fields of dht_status about joining; no others are set.
  [[nodiscard]] dht_status status() const;

private:
  void dial_due();
  void resolve(const endpoint& name);
  void dial(const endpoint& where);
  void on_dial_failed(const endpoint& where, const std::optional<endpoint>& given, failure why);
  void notify_listeners();
  [[nodiscard]] steady_time now() const { return self_->clock().now(); }

  dht_router_base* self_;
  node_context ctx_;
  joining_config config_;
  switchboard_actor switchboard_;
  std::function<void(bool)> dialled_;
  bootstrap bootstrap_;
  std::optional<steady_time> retry_at_; // of the retry that was set last, until it arrives
  std::uint64_t retries_ = 0;
  std::vector<dht_listener_actor> listeners_;
  std::vector<notice> punches_;
  notice reach_;
  dht_status told_;            // the last one that was sent to them
  std::vector<notice> logged_; // notices
};

} // namespace waggle
