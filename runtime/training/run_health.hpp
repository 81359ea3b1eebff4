#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/notice.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// An epoch of this peer's group, when it has ended here. Times in seconds.
struct epoch_facts {
  std::uint32_t peers = 0;        // of the run, that train
  std::uint32_t contributors = 0; // to the round of the epoch
  bool own_gradient = false;      // the round failed, and the epoch ended with this peer's gradient
  double round_seconds = 0;       // search for a group and all-reduce
  double download_seconds = 0;    // of the whole state by a peer of the run; 0: not known
  double samples_per_second = 0;  // of all peers together; 0: not known
  std::uint64_t pass_samples = 0; // of a pass of this peer; 0: it runs none
  std::optional<double> gradient_norm{}; // of the mean; none: no gradient was averaged
};

/// A download that was given up because the updates received meanwhile do not fit in memory.
struct slow_download {
  std::uint64_t state_bytes = 0; // 0: not known
  std::uint64_t received_bytes = 0;
  double seconds = 0;             // so far
  double epoch_seconds = 0;       // typical duration of the run's epochs
  std::uint64_t update_bytes = 0; // of one epoch
  std::uint64_t kept_bytes_max = 0;
  std::uint64_t target_batch_size = 0;
};

/// The target batch size with which the updates received during a whole download would fit, with a
/// quarter to spare; 0: not known.
std::uint64_t sufficient_target_batch(const slow_download& what);

/// Detects settings of a run that do not suit it, from the last epochs of one peer. Each rule looks
/// at the share of the epochs that show its symptom. It begins to hold above one share and ends
/// below a smaller one, so that it does not flap.
///
/// run_health.cpp has the rules.
///
/// Has no clock. Not thread-safe.
class run_health {
public:
  struct options {
    double averaging_timeout = 0; // seconds
    /// Samples from one round to the next; 0: rounds are not due by samples.
    std::uint64_t target_batch = 0;
    std::uint64_t epochs_per_round = 1; // of --target-batch-size samples (schedule_clock)
    std::uint32_t group_size_max = 0;   // a round has no more contributors; 0: without limit
    bool searches_groups = false;       // for each round, instead of one group for the run
  };
  /// The epochs that the rules look at, and how many there must be at least.
  static constexpr std::size_t window = 32;
  static constexpr std::size_t judged_from = 8;
  /// The least time between two log lines of one rule.
  static constexpr auto log_interval = std::chrono::minutes{10};

  explicit run_health(const options& how) : how_(how) {}

  /// Adds an epoch. Returns sentences for the log: of each rule that holds, when it begins and then
  /// at most once per `log_interval`.
  std::vector<std::string> end_epoch(const epoch_facts& epoch, steady_time now);

  /// The run ends epochs faster than its state can be downloaded. Returns a sentence for the log,
  /// unless the rule holds already.
  std::optional<std::string> download_given_up(const slow_download& what);
  void caught_up();

  /// The other peers that train this one's history, and whether each has the state of the run. To
  /// be called often, so that downloads are seen.
  void see_peers(const std::map<peer_id, bool>& have_state, steady_time now);
  /// From the first to the last time that the peer whose download ended last was seen without the
  /// state: it took at least so long, waits for a donor included. 0: not known.
  [[nodiscard]] double download_seconds() const { return download_seconds_; }

  /// A pass gave a loss or a gradient that is NaN or infinite. Returns a sentence for the log, at
  /// most once per `log_interval`.
  std::optional<std::string> pass_not_finite(steady_time now);

  [[nodiscard]] bool holds(std::string_view rule) const;
  /// Of the rules that hold, as of the last epoch, by their names. A slow download comes first:
  /// without the state, the rest does not matter.
  [[nodiscard]] std::vector<notice> notices() const;

  static constexpr std::array<std::string_view, 6> rules{"slow_download", "small_rounds",
                                                         "own_gradients", "short_epochs",
                                                         "small_batches", "zero_updates"};

private:
  struct state {
    bool holds = false;
    notice what{};
    std::optional<steady_time> logged;
  };

  struct sighting {
    steady_time first;
    steady_time last;
  };

  options how_;
  std::deque<epoch_facts> epochs_; // the newest last
  std::array<state, rules.size()> states_;
  std::map<peer_id, sighting> downloads_; // peers without the state
  double download_seconds_ = 0;
  std::uint64_t not_finite_ = 0; // passes that were not logged yet
  std::optional<steady_time> not_finite_logged_;
};

} // namespace waggle
