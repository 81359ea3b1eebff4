#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/dht/bootstrap.hpp"

namespace waggle {

/// To itself: a search's time is up.
struct search_expired {
  std::uint64_t search = 0;
};
/// To itself: somebody may be due to be dialled.
struct retry_bootstrap {
  std::uint64_t number = 0; // only the one set last counts
};
/// To itself: periodic upkeep.
struct table_tick {};

using dht_router_base =
  wired_dht_router_actor::extend<caf::reacts_to<search_expired>, caf::reacts_to<retry_bootstrap>,
                                 caf::reacts_to<table_tick>>::base;

// -- joining -------------------------------------------------------------------------------------

struct joining_config {
  /// When addresses are dialled again, and how many lost peers are.
  bootstrap::options pauses;
  /// How long an address that is dialled may take to answer. Where packets vanish, TCP repeats the
  /// first one after one and three seconds; it is better dialled anew than after seven.
  milliseconds dial_timeout{4'000};
};

/// The part of the DHT router that gets it into the run and back into it: dials whom `bootstrap`
/// says, when it says so, and tells listeners how that goes. Lives and dies with the actor `self`.
class dht_joining {
public:
  /// `reached` is called whenever an address that was dialled has answered.
  dht_joining(dht_router_base* self, node_context ctx, joining_config config,
              switchboard_actor switchboard, std::function<void()> reached);
  dht_joining(const dht_joining&) = delete;
  dht_joining& operator=(const dht_joining&) = delete;

  void begin(const bootstrap_from& msg);
  void subscribe(const dht_listener_actor& listener);
  void on_down(const caf::actor_addr& source);
  void on_retry(const retry_bootstrap& msg);

  /// True if this is how we joined.
  bool on_connected(const peer_record& peer);
  void on_disconnected(const peer_disconnected& msg);

  /// What dht_status says about joining; nothing else.
  [[nodiscard]] dht_status status() const;

private:
  void dial_due();
  void dial(const endpoint& where);
  void tell_listeners();
  [[nodiscard]] steady_time now() const { return self_->clock().now(); }

  dht_router_base* self_;
  node_context ctx_;
  joining_config config_;
  switchboard_actor switchboard_;
  std::function<void()> reached_;
  bootstrap bootstrap_;
  std::optional<steady_time> retry_at_; // of the retry set last, until it comes
  std::uint64_t retries_ = 0;
  std::vector<dht_listener_actor> listeners_;
  dht_status told_; // what they heard last
};

} // namespace waggle

WAGGLE_LOCAL(search_expired)
WAGGLE_LOCAL(retry_bootstrap)
WAGGLE_LOCAL(table_tick)
