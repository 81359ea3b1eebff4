#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace waggle {

/// What /api/v1/status said of one peer, last. Its texts are printable and short.
struct peer_snapshot {
  std::string id;
  std::string phase; // any word: peers of other versions have other phases
  std::uint64_t epoch = 0;
  std::uint64_t samples_toward_epoch = 0; // accumulated since the last update
  double loss = std::numeric_limits<double>::quiet_NaN();
  double first_loss = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t used = 0; // samples that entered an update
  std::uint64_t dropped = 0;
  std::uint64_t complete = 0;
  std::uint64_t shrunk = 0;
  std::uint64_t failed = 0;
  std::string last_outcome;
  std::string parameters;
  std::uint64_t bytes_received = 0; // on the wire
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_shared = 0; // passed through memory instead, both ways

  [[nodiscard]] std::uint64_t bytes_moved() const {
    return bytes_received + bytes_sent + bytes_shared;
  }
};

/// Reads the document; nothing if it is none.
std::optional<peer_snapshot> parse_snapshot(const std::string& json);

/// How a swarm did, for people and for scripts.
struct swarm_summary {
  struct peer {
    peer_snapshot last;
    bool killed = false;
    bool joined_late = false;
    bool silent = false; // did not answer when it was asked last
  };
  std::vector<peer> peers;
  std::uint64_t kills = 0;
  std::uint64_t joins = 0;
  double seconds = 0;
  std::optional<bool> parameters_equal; // nothing: peers never stood at one epoch to compare

  /// Mean loss of the first epoch, of the first peer that has one.
  [[nodiscard]] double start_loss() const;
  /// All living peers are below `ratio` of the start.
  [[nodiscard]] bool losses_fell_below(double ratio) const;
  /// Whether all living peers have the same parameters; nothing if that cannot be said, because
  /// one did not answer or they stand at different epochs.
  [[nodiscard]] std::optional<bool> compare_parameters() const;
  /// One sentence for each living peer that did not end a run of `epochs` as the others: at another
  /// epoch, or with other parameters than most.
  [[nodiscard]] std::vector<std::string> differences(std::uint64_t epochs) const;

  /// {"peers":[{"id","first_loss","last_loss","epoch","samples","bytes":{"sent","received",
  /// "shared"},"killed","joined_late"}],"rounds":{"complete","shrunk","failed"},
  /// "samples":{"used","dropped"},"kills","joins","seconds","parameters_equal","strategy"}; null
  /// where it is not known. Samples are those that entered an update.
  [[nodiscard]] std::string json() const;
  /// No line of its table is longer than `width`.
  [[nodiscard]] std::string text(std::size_t width) const;
};

} // namespace waggle
