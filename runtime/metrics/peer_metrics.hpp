#pragma once

#include <ctime>

#include "runtime/core/version.hpp"
#include "runtime/metrics/metric.hpp"

namespace waggle {

/// What this peer is and does, and which peers it knows.
class peer_metrics {
  metric_registry& in_;

public:
  explicit peer_metrics(metric_registry& registry) : in_(registry) {
    build_info.show({{"version", std::string{version}}});
    start_timestamp(static_cast<double>(std::time(nullptr)));
    set_peer_state("starting");
    set_peers(1, 0, 0);
  }

  /// `serving`: a peer without a model.
  using state = label<"state", "starting", "joining", "syncing", "training", "averaging", "paused",
                      "serving", "leaving">;

  info build_info{in_, "waggle_build_info", "Always 1; the labels identify the build."};
  info config_info{in_, "waggle_config_info", "Always 1; peers of one run must have equal labels."};
  gauge<> start_timestamp{in_, "waggle_start_timestamp_seconds",
                          "When the process started, Unix time."};
  gauge<state> peer_states{in_, "waggle_peer_state",
                           "1 for the state that this peer is in, 0 for the others."};
  gauge<label<"role", "node", "client", "aux">> known_peers{
    in_, "waggle_peers", "Peers believed to be alive, including this one."};
  counter<> count_peer_join{in_, "waggle_peer_joins_total", "Peers that appeared."};
  counter<some_codes<3, "reason", ec::shutting_down, ec::timeout, ec::peer_lost, ec::overloaded,
                     ec::protocol_violation, ec::malformed, ec::oversize, ec::bad_signature,
                     ec::duplicate_identity>>
    count_peer_departure{in_, "waggle_peer_departures_total",
                         "Peers that left or were lost, by reason."};
  gauge<> set_unreachable{
    in_, "waggle_peer_unreachable",
    "1 while this peer listens but others do not reach its address, so that it "
    "acts as a client."};

  void set_config_info(std::string_view config_hash, std::string_view schema_hash,
                       std::string_view strategy) {
    config_info.show({{"config_hash", std::string{config_hash}},
                      {"schema_hash", std::string{schema_hash}},
                      {"strategy", std::string{strategy}}});
  }
  /// Exactly one state is 1.
  void set_peer_state(state now) {
    for (std::size_t i = 0; i < state::size; ++i)
      peer_states(state{i}, i == now.number() ? 1 : 0);
  }
  void set_peers(double nodes, double clients, double auxiliaries) {
    known_peers("node", nodes);
    known_peers("client", clients);
    known_peers("aux", auxiliaries);
  }
};

} // namespace waggle
