#pragma once

#include <cstdint>
#include <optional>

#include "runtime/training/plan.hpp"
#include "runtime/training/strategy.hpp"
#include "runtime/training/verdict.hpp"

namespace waggle {

/// The flight of a strategy, one at a time, and what became of every sample (INV-2): a sample that
/// was added counts toward the next boundary, is in flight, was used or was dropped. It ends in
/// exactly one of the last two. Not thread-safe.
class flight_ledger {
public:
  explicit flight_ledger(const strategy& strategy);

  /// Samples whose gradient was accumulated.
  void add(std::uint64_t samples) { toward_boundary_ += samples; }
  /// Samples whose gradient is unusable and was never accumulated.
  void refuse(std::uint64_t samples) { dropped_ += samples; }
  /// The optimizer has stepped with the accumulated gradient (inner_rule::step). Returns the number
  /// of its samples.
  std::uint64_t use_accumulated();
  /// Drops the accumulated gradient. Returns the number of its samples.
  std::uint64_t drop_accumulated();

  /// A round begins, and takes what was accumulated with it, unless parameters are averaged.
  /// Returns the number of its samples. REQUIRES: no flight is under way.
  std::uint64_t begin(std::uint64_t own_step, std::uint64_t epoch);
  /// The round is over. REQUIRES: it is under way; `outcome` is not retry.
  void end(verdict outcome);
  /// Its mean is not used: the flight waits for another round. REQUIRES: the round is over.
  void reopen();
  /// What became of the samples of a flight.
  struct settlement {
    std::uint64_t used = 0;
    std::uint64_t dropped = 0;
  };
  /// The flight was merged or given up, according to its outcome. `contributed`: true if the mean
  /// contains our samples; false if the others decided without them. REQUIRES: its round is over.
  settlement settle(bool contributed = true);
  /// The learner has taken the samples of the flight back (learner::take_back), to be added again
  /// with its next one.
  void recall();
  // As a `situation` needs them.
  [[nodiscard]] const std::optional<flying_round>& round() const { return round_; }
  [[nodiscard]] std::optional<std::uint64_t> last_epoch() const { return last_epoch_; }
  [[nodiscard]] std::uint64_t toward_boundary() const { return toward_boundary_; }
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }
  [[nodiscard]] std::uint64_t used() const { return used_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

private:
  const bool takes_samples_;
  std::optional<flying_round> round_;
  std::optional<std::uint64_t> last_epoch_;
  std::uint64_t in_flight_ = 0;
  std::uint64_t toward_boundary_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t dropped_ = 0;
};

} // namespace waggle
