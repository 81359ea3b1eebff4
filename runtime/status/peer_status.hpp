#pragma once

// What a peer's actors report about themselves, for its pages, its metrics and its log.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/history.hpp"
#include "runtime/core/notice.hpp"
#include "runtime/training/strategy_phase.hpp"

namespace waggle {

enum class trainer_phase : std::uint8_t {
  starting = 0,
  joining,
  syncing,
  training,
  averaging,
  finished,
  stopped,
  paused // by the operator; in no group
};
constexpr std::string_view to_string(trainer_phase x) {
  constexpr std::string_view names[]{"starting",  "joining",  "syncing", "training",
                                     "averaging", "finished", "stopped", "paused"};
  auto at = static_cast<std::size_t>(x);
  return at < std::size(names) ? names[at] : "unknown";
}

/// How often the samples of one pass over the data have entered an update.
struct pass_seen {
  std::uint64_t pass = 0; // from 1 on
  std::uint64_t once = 0;
  std::uint64_t twice = 0;
  std::uint64_t never = 0;
};

/// Of a trainer; reported when it changed, at most every 100 ms (a new phase at once).
struct training_status {
  trainer_phase phase = trainer_phase::starting;
  epoch_id epoch;
  epoch_id global_epoch;
  epoch_id schedule_epoch; // that the learning rate follows; see schedule_clock
  /// Smoothed (EMA); NaN before the first micro-step.
  double loss = std::numeric_limits<double>::quiet_NaN();
  /// Mean of the first micro-steps of its first epoch; NaN before its end.
  double first_loss = std::numeric_limits<double>::quiet_NaN();
  /// Of the shared weights on --eval-data, at eval_epoch; NaN: they were not evaluated yet.
  double eval_loss = std::numeric_limits<double>::quiet_NaN();
  double eval_accuracy = std::numeric_limits<double>::quiet_NaN();
  epoch_id eval_epoch;
  double seconds_left = std::numeric_limits<double>::quiet_NaN(); // of the run; NaN: not known
  double learning_rate = 0;
  /// How often the schedule plateau has lowered the rate; none: the schedule is another one.
  std::optional<std::uint64_t> rate_reductions;
  std::optional<strategy_phase> strategy; // none: it has no schedule of its own
  /// Passes from the copy that a round averaged until its mean was merged, of the last one.
  std::optional<std::uint64_t> mean_age;
  double gradient_norm = 0;               // of the last applied gradient
  std::uint64_t samples_toward_epoch = 0; // of this peer
  std::uint64_t target_batch_size = 0;
  // INV-2: offered = used + dropped + pending
  std::uint64_t samples_offered = 0; // by passes, and those that were resumed
  std::uint64_t samples_resumed = 0; // that the process before this one had kept
  std::uint64_t samples_used = 0;    // entered an optimizer update
  std::uint64_t samples_dropped = 0; // dropped and counted
  [[nodiscard]] std::uint64_t samples_pending() const {
    return samples_offered - std::min(samples_offered, samples_used + samples_dropped);
  }
  /// The last passes over the data that ended while this peer trained, and then the present one;
  /// empty: the samples are not counted.
  std::vector<pass_seen> passes;
  std::uint64_t rounds_complete = 0;
  std::uint64_t rounds_shrunk = 0;
  std::uint64_t rounds_failed = 0;
  std::uint64_t local_fallbacks = 0; // epochs that ended with our own gradient after a failed round
  std::uint64_t state_downloads = 0;
  std::uint64_t steps = 0; // micro-steps
  /// Used samples by wall time (windowed_rate); NaN before the first update.
  double samples_per_second = std::numeric_limits<double>::quiet_NaN();
  double compute_samples_per_second = 0; // of passes alone; 0: not known
  digest parameters;
  std::string last_outcome; // of the last round: "complete", "shrunk", "failed: reason", "alone"
  std::uint64_t effective_batch = 0; // samples in the last epoch's update, of all contributors
  history past;                      // that `epoch` belongs to
  std::uint32_t group_size = 0;      // members of our group, this peer included; 0: in none
  bool provisional = false;          // this peer went on without most of its group
  std::string waiting_for;           // empty: not waiting
  std::uint32_t peers_behind = 0;    // peers that train and are not at our epoch
  std::uint32_t histories = 0;       // that live peers train, ours included
  std::uint32_t differing_peers = 0; // at our epoch of our history with other parameters
  double first_round_seconds = 0;    // from our start to the end of our first round; 0: none yet
  std::vector<notice> notices;       // problems that the operator should act on
};

/// Of a node that reduces for clients.
struct helper_status {
  std::uint32_t clients = 0;    // in our group
  std::uint32_t group_size = 0; // 0: in none
  epoch_id epoch;               // of our group
  history past;                 // of our group
};

/// Of the DHT. A peer with `addresses_known` that is not `bootstrapped` does not know whether the
/// run exists. It must not begin a run of its own without reporting it.
struct dht_status {
  /// Another peer of the run answered, or there is no address to join at. Stays true.
  bool bootstrapped = false;
  /// There was an address to join at besides our own: an initial one, or one of a peer known from
  /// an earlier run of the process.
  bool addresses_known = false;
  std::uint32_t initial_peers = 0;             // addresses that the operator gave, without our own
  std::vector<std::string> bootstrap_failures; // "host:port: reason" of the last dial, if it failed
  std::vector<notice> notices; // about the initial addresses of a peer that has joined, and its own
  std::vector<notice> punches; // of the last peers; with a cure: it brought no link
};

} // namespace waggle
