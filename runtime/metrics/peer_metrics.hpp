#pragma once

#include "runtime/core/version.hpp"
#include "runtime/metrics/metric.hpp"

namespace waggle {

/// What this peer is and does, and which peers it knows.
class peer_metrics {
public:
  explicit peer_metrics(metric_registry& registry) : in_(registry) {
    build_info_.at(version).Set(1);
    start_timestamp_.at().SetToCurrentTime();
    set_peer_state("starting");
    set_peers(1, 0, 0);
  }

  void set_config_info(std::string_view config_hash, std::string_view schema_hash,
                       std::string_view strategy) {
    config_info_.at(config_hash, schema_hash, strategy).Set(1);
  }
  /// Exactly one state is 1. `serving`: a peer without a model.
  void set_peer_state(std::string_view state) {
    for (std::string_view name : {"starting", "joining", "syncing", "training", "averaging",
                                  "paused", "serving", "leaving"})
      state_.at(name).Set(state == name ? 1 : 0);
  }
  void set_peers(double nodes, double clients, double auxiliaries) {
    peers_.at("node").Set(nodes);
    peers_.at("client").Set(clients);
    peers_.at("aux").Set(auxiliaries);
  }
  void count_peer_join() { joins_.at().Increment(); }
  void count_peer_departure(ec reason) { departures_.at(reason).Increment(); }
  void set_unreachable(bool unreachable) { unreachable_.at().Set(unreachable ? 1 : 0); }
  void set_clock_skew(double seconds) { clock_skew_.at().Set(seconds); }

private:
  metric_registry& in_;
  gauge<1> build_info_{in_, "waggle_build_info", "Always 1; the labels identify the build.",
                       label{"version"}};
  gauge<3> config_info_{in_,
                        "waggle_config_info",
                        "Always 1; peers of one run must have equal labels.",
                        label{"config_hash"},
                        label{"schema_hash"},
                        label{"strategy"}};
  gauge<> start_timestamp_{in_, "waggle_start_timestamp_seconds",
                           "When the process started, Unix time."};
  gauge<1> state_{in_, "waggle_peer_state",
                  "1 for the state that this peer is in, 0 for the others.", label{"state"}};
  gauge<1> peers_{in_, "waggle_peers", "Peers believed to be alive, including this one.",
                  label{"role"}};
  counter<> joins_{in_, "waggle_peer_joins_total", "Peers that appeared."};
  counter<1> departures_{in_, "waggle_peer_departures_total",
                         "Peers that left or were lost, by reason.",
                         label{"reason", {ec::shutting_down, ec::timeout, ec::peer_lost}}};
  gauge<> unreachable_{in_, "waggle_peer_unreachable",
                       "1 while this peer listens but others do not reach its address, so that it "
                       "acts as a client."};
  gauge<> clock_skew_{in_, "waggle_clock_skew_seconds",
                      "Estimated offset between this clock and the swarm's."};
};

} // namespace waggle
