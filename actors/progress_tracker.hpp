#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/progress/throughput.hpp"

namespace waggle {

struct progress_config {
  /// The progress records' name in the DHT; peers of one run use the same.
  std::string name = "progress";
  ledger_options ledger;
  double performance_ema_alpha = 0.1;
  /// How long a report counts after it was made, if there is no other sign of its peer.
  milliseconds report_ttl{60'000};
  /// Signed reports are pushed to connected peers at most this often (for a new epoch, at once).
  /// Between them samples are sent unsigned, over links that authenticate the sender.
  milliseconds push_interval{100};
  /// The report in the DHT, which unconnected peers read, is updated at most this often.
  milliseconds store_interval{5'000};
};

/// Command: send the view of the run to `listener` when it changes, and the current one at once.
struct subscribe_progress {
  progress_listener_actor listener;
};
/// To itself: publish and read what is due, forget what has expired.
struct progress_tick {};

struct progress_tracker_state {
  static inline const char* name = "progress-tracker";

  std::optional<progress_ledger> ledger;
  throughput speed;
  std::optional<progress_report> own;
  std::optional<epoch_id> active; // global epoch when we last had samples
  steady_time measured;           // time of the last samples that `speed` includes
  std::uint64_t last_sequence = 0;
  steady_time pushed;
  steady_time stored;
  steady_time tended;
  bool push_due = false;
  bool store_due = false;
  steady_time read;
  bool reading = false;
  bool left = false;
  bool told_ready = false; // as in the last view sent to listeners
  bool note_due = false;
  steady_time noted;
  std::map<peer_id, peer_record> connected;
  std::vector<progress_listener_actor> listeners;
};

using progress_tracker_impl =
  progress_tracker_actor::extend<caf::reacts_to<subscribe_progress>, caf::reacts_to<progress_tick>>;

/// Tracks the progress of every peer: reads signed reports from the DHT, receives them from
/// connected peers, and publishes ours both ways. Queries never wait for the network.
progress_tracker_impl::behavior_type
progress_tracker(progress_tracker_impl::stateful_pointer<progress_tracker_state> self,
                 node_context ctx, progress_config config, switchboard_actor switchboard,
                 dht_router_actor dht);

} // namespace waggle

WAGGLE_LOCAL(subscribe_progress)
WAGGLE_LOCAL(progress_tick)
