#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace waggle {

/// The names of all phases.
constexpr std::string_view strategy_phases[]{"warm-up", "cycling", "cool-down"};

/// Where the schedule of a strategy stands that has one of its own (strategy_row::phase). A
/// function of the run's state, so peers of an epoch agree about it. Losses are means over all
/// peers that give one; NaN: not known.
struct strategy_phase {
  std::string_view name{};        // one of strategy_phases
  std::uint64_t epoch = 0;        // of the strategy: that have ended. Those of the run are rounds
  std::uint64_t epochs = 0;       // after which the run ends; 0: it does not
  std::uint64_t batches = 0;      // of one epoch
  std::uint64_t batches_done = 0; // of the present epoch, before the last round
  std::uint64_t next_round = 1;   // batches after the last round
  std::uint64_t skips = 0;        // batches from one round to the next; 0: each one, and all wait
  std::uint64_t wait = 0;         // batches until a round is merged
  double loss = std::numeric_limits<double>::quiet_NaN(); // of the last epoch: it decides on skips
  double best_loss = std::numeric_limits<double>::quiet_NaN();

  [[nodiscard]] bool ended() const { return epochs > 0 && epoch >= epochs; }
  /// Whether rounds are made in the same way.
  [[nodiscard]] bool averages_as(const strategy_phase& other) const {
    return name == other.name && skips == other.skips && wait == other.wait
           && ended() == other.ended();
  }
};

} // namespace waggle
