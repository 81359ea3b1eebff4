#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/training/plan.hpp"
#include "runtime/training/strategy.hpp"
#include "runtime/training/verdict.hpp"

namespace waggle {

/// The flights of a strategy's lanes, and what became of every sample (INV-2): a sample that was
/// added counts toward the next boundary, is in flight, was used or was dropped. It ends in exactly
/// one of the last two. Not thread-safe.
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

  /// A round of `lane` begins. A lane of gradients or progress takes what was accumulated with it.
  /// Returns the number of its samples. REQUIRES: no flight of this lane is under way.
  std::uint64_t begin(std::size_t lane, std::uint64_t own_step, std::uint64_t epoch);
  /// The round of `lane` is over. REQUIRES: it is under way; `outcome` is not retry.
  void end(std::size_t lane, verdict outcome);
  /// The mean of the round of `lane` is not used: the flight waits for another round. REQUIRES: its
  /// round is over.
  void reopen(std::size_t lane);
  /// What became of the samples of a flight.
  struct settlement {
    std::uint64_t used = 0;
    std::uint64_t dropped = 0;
  };
  /// The flight of `lane` was merged or given up, according to its outcome. `contributed`: true if
  /// the mean contains our samples; false if the others decided without them. REQUIRES: its round
  /// is over.
  settlement settle(std::size_t lane, bool contributed = true);
  /// The learner has taken the samples of the flight back (learner::take_back), to be added again
  /// with its next one.
  void recall(std::size_t lane);
  /// The lane states that a `situation` needs.
  [[nodiscard]] const std::vector<lane_state>& lanes() const { return lanes_; }
  [[nodiscard]] std::uint64_t toward_boundary() const { return toward_boundary_; }
  [[nodiscard]] std::uint64_t in_flight(std::size_t lane) const { return in_flight_.at(lane); }
  [[nodiscard]] std::uint64_t in_flight() const; // of all lanes
  [[nodiscard]] std::uint64_t used() const { return used_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

private:
  std::vector<bool> takes_samples_; // by lane
  std::vector<lane_state> lanes_;
  std::vector<std::uint64_t> in_flight_; // by lane
  std::uint64_t toward_boundary_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t dropped_ = 0;
};

} // namespace waggle
