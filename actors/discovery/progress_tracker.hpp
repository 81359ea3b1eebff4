#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/progress/report_pace.hpp"
#include "runtime/progress/throughput.hpp"

namespace waggle {

struct progress_config {
  /// The progress records' name in the DHT; peers of one run use the same.
  std::string name = "progress";
  ledger_options ledger;
  double performance_ema_alpha = 0.1;
  std::string settings; // see peer_vitals, as the next one
  std::optional<float> share_priority = 0.0F;
  /// How long a report counts after it was made, if there is no other sign of its peer.
  milliseconds report_ttl{60'000};
  /// Signed reports are pushed to connected peers at most this often, and more rarely in long
  /// epochs (report_pace), unless they say something new; in a new group, at once. Between them
  /// samples are sent unsigned, over links that authenticate the sender.
  milliseconds push_interval{100};
  /// The report in the DHT, which unconnected peers read, is updated at most this often.
  milliseconds store_interval{5'000};
};

/// To itself: publish what is due, read what is due, forget what expired.
struct progress_tick {};
/// To itself: listeners may be told what has changed since they were told last.
struct progress_news {};

using progress_tracker_base = wired_progress_tracker_actor::extend<
  caf::reacts_to<progress_tick>>::extend<caf::reacts_to<progress_news>>::base;

/// Tracks the progress of every peer: reads signed reports from the DHT, receives them from
/// connected peers, and publishes ours both ways. Never waits for the network before it answers.
///
/// Listeners see what this peer reports at once. What others report they see at once if it is long
/// enough since the last time, otherwise a moment later, together with what has come meanwhile. A
/// listener that is slow has at most one view to process; after five seconds it gets the next one.
class progress_tracker final : public progress_tracker_base {
public:
  progress_tracker(caf::actor_config& cfg, node_context ctx, progress_config config,
                   switchboard_actor switchboard, dht_router_actor dht);

  const char* name() const override { return "progress-tracker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  [[nodiscard]] steady_time now() const { return clock().now(); }
  [[nodiscard]] swarm_progress view() const { return ledger_.view(own_, ctx_.wall->now()); }

  // What listeners are told.
  struct listener {
    progress_listener_actor actor;
    std::uint64_t sent = 0; // the number of the last view
    bool busy = false;      // it has not processed this view
  };
  void subscribe(const progress_listener_actor& actor);
  void on_change();
  void notify_listeners();
  void send_view();
  void on_processed(const caf::actor_addr& actor);
  void remove_listener(const caf::actor_addr& actor);
  [[nodiscard]] std::chrono::microseconds change_interval() const;

  // Our own report.
  void report(const report_progress& msg);
  [[nodiscard]] bool publishes() const;
  record sign(bool tombstone);
  void tell(const peer_record& peer, const record& entry);
  void send_due(bool at_once);
  void note();
  void push();
  void store(const record& entry);
  void leave();

  // What others report.
  void on_event(const inbound_event& msg);
  bool take(const record& entry, bool verified, const std::string& host = {});
  void count_dropped();
  bool refuse(ec reason) const;
  void read();

  void on_connected(const peer_record& peer);
  void on_disconnected(const peer_id& peer);
  void on_tick();

  const node_context ctx_;
  const progress_config config_;
  switchboard_actor switchboard_;
  dht_router_actor dht_;

  progress_ledger ledger_;
  throughput speed_;
  report_pace pace_;
  std::optional<progress_report> own_;
  std::optional<epoch_id> active_; // global epoch when we last had samples
  steady_time measured_;           // until when `speed_` includes our samples
  std::uint64_t last_sequence_ = 0;
  steady_time upkept_;
  steady_time read_;
  bool reading_ = false;
  bool left_ = false;
  std::map<peer_id, peer_record> connected_;
  std::uint64_t dropped_ = 0;       // reports, as counted by the metrics
  std::vector<listener> listeners_; // in the order in which they are told
  caf::message view_;               // the last one that they were told
  std::uint64_t views_ = 0;         // its number
  steady_time quiet_until_{};       // no view before, because of what others report
  bool changed_ = false;            // since then
  bool change_due_ = false;         // progress_news is under way to us
};

} // namespace waggle
