#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace waggle {

/// What /api/v1/status said of one peer, last.
struct peer_snapshot {
  std::string id;
  std::string phase;
  std::uint64_t epoch = 0;
  std::uint64_t samples_toward_epoch = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double first_loss = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t used = 0;
  std::uint64_t dropped = 0;
  std::uint64_t complete = 0;
  std::uint64_t shrunk = 0;
  std::uint64_t failed = 0;
  std::string last_outcome;
  std::string parameters;
  std::uint64_t bytes = 0; // both ways
};

/// Reads the document; nothing if it is none.
std::optional<peer_snapshot> parse_snapshot(const std::string& json);

/// How a swarm did, for people and (product.md §7) for scripts.
struct swarm_summary {
  struct peer {
    peer_snapshot last;
    bool killed = false;
    bool joined_late = false;
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

  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string text() const;
};

/// The live table: one line per peer, in columns.
std::string table_head();
std::string table_row(const swarm_summary::peer& peer);

} // namespace waggle
