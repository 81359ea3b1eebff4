#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace waggle {

/// The last answer of one peer's /api/v1/status. Its texts are printable and short.
struct peer_snapshot {
  std::string id;
  std::string phase; // any text: peers of other versions have other phases
  std::uint64_t epoch = 0;
  std::uint64_t samples_toward_epoch = 0; // accumulated since the last update
  double loss = std::numeric_limits<double>::quiet_NaN();
  double first_loss = std::numeric_limits<double>::quiet_NaN();
  double eval_loss = std::numeric_limits<double>::quiet_NaN();
  double eval_accuracy = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t used = 0; // samples that entered an update
  std::uint64_t dropped = 0;
  struct pass {
    std::uint64_t number = 0;
    std::uint64_t once = 0; // samples that have entered one update
    std::uint64_t twice = 0;
    std::uint64_t never = 0;
  };
  std::vector<pass> passes; // over the data, if its samples are counted
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

/// Parses the document; nothing if it is not a status document.
std::optional<peer_snapshot> parse_snapshot(const std::string& json);

struct swarm_summary {
  struct peer {
    peer_snapshot last;
    bool killed = false;
    bool joined_late = false;
    bool silent = false; // did not answer the last request
  };
  std::vector<peer> peers{};
  std::uint64_t kills = 0;
  std::uint64_t joins = 0;
  double seconds = 0;
  std::optional<bool> parameters_equal{}; // none: the peers were never seen at the same epoch
  std::string strategy = "collaborative";
  bool exact = true; // with this strategy all peers at an epoch hold equal parameters

  /// Mean loss of the first epoch, of the first peer that has one.
  [[nodiscard]] double start_loss() const;
  /// Whether the losses of all living peers are below `ratio` times the start loss.
  [[nodiscard]] bool losses_fell_below(double ratio) const;
  /// The passes over the data as the peer that saw most of them reports them.
  [[nodiscard]] std::vector<peer_snapshot::pass> passes() const;
  /// Whether all living peers have the same parameters. Nothing if this is unknown because one did
  /// not answer or they are at different epochs.
  [[nodiscard]] std::optional<bool> compare_parameters() const;
  /// One sentence for each living peer that ended a run of `epochs` at another epoch, or with other
  /// parameters than most peers.
  [[nodiscard]] std::vector<std::string> differences(std::uint64_t epochs) const;

  /// {"peers":[{"id","first_loss","last_loss","eval_loss","eval_accuracy","epoch","samples",
  /// "bytes":{"sent","received","shared"},"killed","joined_late"}],"rounds":{"complete","shrunk","failed"},
  /// "samples":{"used","dropped"},"passes":[{"pass","once","twice","never"}],"kills","joins",
  /// "seconds","parameters_equal","strategy"}; null for unknown values. Samples are those that
  /// entered an update.
  [[nodiscard]] std::string json() const;
  /// For people. No line of its table is longer than `width`.
  [[nodiscard]] std::string text(std::size_t width) const;
};

} // namespace waggle
