#pragma once

#include <memory>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "runtime/status/status_board.hpp"
#include "runtime/status/status_documents.hpp"

namespace waggle {

/// To itself: write the documents again.
struct refresh_documents {};

using metrics_exporter_base =
  wired_metrics_exporter_actor::extend<caf::reacts_to<refresh_documents>>::base;

/// Keeps /api/v1/status, /api/v1/peers and /readyz up to date with what the other actors report
/// (status_documents.hpp), and makes the events of it that they do not note themselves
/// (event_maker.hpp). Asks nobody.
class metrics_exporter final : public metrics_exporter_base {
public:
  /// @param trains a trainer will report; until then the documents say that it starts. @param
  /// auxiliary it only reduces.
  metrics_exporter(caf::actor_config& cfg, node_context ctx, std::shared_ptr<status_board> board,
                   bool trains, bool auxiliary = false);

  const char* name() const override { return "metrics-exporter"; }

protected:
  behavior_type make_behavior() override;

private:
  void show_self();
  void refresh();
  void watch_round(const round_report& report, const std::string& spans);
  void on_connected(const peer_record& peer);
  void watch_links();
  void note(const event_maker::events& all) const;

  const node_context ctx_;
  const std::shared_ptr<status_board> board_;
  const steady_time began_;
  bool trains_ = false;
  bool shown_self_ = false;
  peer_picture picture_;
  steady_time peers_due_; // when the list of peers is written again
  steady_time links_watched_;
  std::map<peer_id, net::link_facts> carried_; // at links_watched_
};

/// Command: pass reports on to this exporter, which was started in place of the one before.
struct report_to {
  metrics_exporter_actor exporter;
};
using report_relay_actor = metrics_exporter_actor::extend<caf::reacts_to<report_to>>;

/// Passes reports on to the exporter that lives, for those that keep one address to report to.
report_relay_actor::behavior_type
report_relay(report_relay_actor::stateful_pointer<metrics_exporter_actor> self,
             const metrics_exporter_actor& exporter);

} // namespace waggle
