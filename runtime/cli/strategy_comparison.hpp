#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/config/run_options.hpp"
#include "runtime/core/result.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

/// One row of the comparison of `waggle bench train --strategy all`.
struct strategy_case {
  std::string name;                   // as on the command line: "local-updates"
  std::vector<std::string> arguments; // of `waggle train`
  bool steps_each_pass = false;       // otherwise once per epoch
  lane_overlap::until merged = lane_overlap::until::own_steps;
  std::uint64_t epochs = 0;
};

/// A row for each strategy of `waggle train`, and for each of its variants. All rows average after
/// the same number of samples, and end after options.steps passes of each peer. Fails with
/// ec::bad_config if an epoch has less than a pass of each peer, or the run less than three epochs.
result<std::vector<strategy_case>> strategy_cases(const run_options& options);

/// The values in a peer's /metrics.
struct peer_reading {
  double at = 0; // seconds, on the reader's clock
  double epoch = 0;
  double samples = 0; // that entered an update
  double passes = 0;
  double computing_seconds = 0; // in passes and optimizer steps
  double rounds = 0;
  double round_seconds = 0; // of all rounds together
  double bytes_sent = 0;
};
peer_reading reading_of(std::string_view metrics, double at);

/// The plain loop, next to as many others as the swarm has peers.
struct loop_reading {
  double samples_per_second = 0;
  double peak_bytes = 0; // resident
};

struct peer_run {
  peer_reading first; // after its first round
  peer_reading last;
  double samples = 0;    // that entered an update, at the end
  double peak_bytes = 0; // resident
};

/// The measurements of a row; means over the peers.
struct strategy_result {
  std::string name;
  double samples_per_second = 0; // of a peer
  double share = 0;              // of the plain loop's
  double stall_seconds = 0;      // per epoch: computing nothing
  /// Epochs from the parameters that a merged value was computed from to its merge. A gradient of
  /// the current parameters: 0.
  double staleness = 0;
  double extra_bytes = 0;       // peak resident size beyond the plain loop's
  double sent_per_thousand = 0; // bytes, per 1,000 samples
  double loss = 0;              // of the first peer's last parameters; NaN: not measured
  double samples = 0;           // of all peers, at the end
};
/// `pause`: between two passes, in seconds (--step-interval).
/// REQUIRES: there is a peer, and each one's last reading is later than its first.
strategy_result result_of(const strategy_case& row, const std::vector<peer_run>& peers,
                          const loop_reading& loop, double pause);

/// The table for people, one line per element.
std::vector<std::string> comparison_table(const std::vector<strategy_result>& rows);
nlohmann::ordered_json to_json(const strategy_result& row);

} // namespace waggle
