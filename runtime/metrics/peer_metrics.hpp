#pragma once

#include "runtime/core/version.hpp"
#include "runtime/metrics/metric.hpp"

namespace waggle {

/// What this peer is and does, and which peers it knows.
class peer_metrics {
public:
  explicit peer_metrics(metric_registry& registry) : in_(registry) {
    build_info_.show({{"version", std::string{version}}});
    start_timestamp_.at().SetToCurrentTime();
    set_peer_state("starting");
    set_peers(1, 0, 0);
  }

  void set_config_info(std::string_view config_hash, std::string_view schema_hash,
                       std::string_view strategy) {
    config_info_.show({{"config_hash", std::string{config_hash}},
                       {"schema_hash", std::string{schema_hash}},
                       {"strategy", std::string{strategy}}});
  }
  /// `serving`: a peer without a model.
  using state = label<"state", "starting", "joining", "syncing", "training", "averaging", "paused",
                      "serving", "leaving">;

  /// Exactly one state is 1.
  void set_peer_state(state now) {
    for (std::size_t i = 0; i < state::size; ++i)
      state_.at(state{i}).Set(i == now.number() ? 1 : 0);
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
  info build_info_{in_, "waggle_build_info", "Always 1; the labels identify the build."};
  info config_info_{in_, "waggle_config_info",
                    "Always 1; peers of one run must have equal labels."};
  gauge<> start_timestamp_{in_, "waggle_start_timestamp_seconds",
                           "When the process started, Unix time."};
  gauge<state> state_{in_, "waggle_peer_state",
                      "1 for the state that this peer is in, 0 for the others."};
  gauge<label<"role", "node", "client", "aux">> peers_{
    in_, "waggle_peers", "Peers believed to be alive, including this one."};
  counter<> joins_{in_, "waggle_peer_joins_total", "Peers that appeared."};
  counter<some_codes<3, "reason", ec::shutting_down, ec::timeout, ec::peer_lost, ec::overloaded,
                     ec::protocol_violation, ec::malformed, ec::oversize, ec::bad_signature,
                     ec::duplicate_identity>>
    departures_{in_, "waggle_peer_departures_total", "Peers that left or were lost, by reason."};
  gauge<> unreachable_{in_, "waggle_peer_unreachable",
                       "1 while this peer listens but others do not reach its address, so that it "
                       "acts as a client."};
  gauge<> clock_skew_{in_, "waggle_clock_skew_seconds",
                      "Estimated offset between this clock and the swarm's."};
};

} // namespace waggle
