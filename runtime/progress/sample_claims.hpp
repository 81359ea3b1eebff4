#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/time_outs.hpp"

namespace waggle {

/// How much of the samples that other members claim counts toward the target.
///
/// An honest member contributes at least the samples that it has claimed, so the weight of a
/// complete round is at least the sum of the claims. If it is less, somebody has claimed what it
/// did not deliver. Members whose claim is within what they delivered in earlier rounds are not
/// suspected; of the others, those with the largest claims are, until they account for what is
/// missing. What they claim does not count for a time that doubles. The claim of a member that has
/// delivered before counts as far as it is plausible: its largest delivery, and twice its speed
/// since the epoch began. Not thread-safe.
class sample_claims {
public:
  explicit sample_claims(std::uint64_t target) : target_(target) {}

  /// `peer` claims so many samples toward the epoch.
  void observe(const peer_id& peer, std::uint64_t samples);
  /// So many of them count now.
  [[nodiscard]] std::uint64_t counted(const peer_id& peer, std::uint64_t samples,
                                      steady_time now) const;
  /// The speed to expect of it, if it claims this one. Samples per second.
  [[nodiscard]] double speed(const peer_id& peer, double claimed, steady_time now) const;

  /// Claims are toward the next epoch from now on; those so far are due in the round that begins.
  void begin_epoch(steady_time now);
  struct shortfall {
    std::uint64_t missing = 0;     // samples that were claimed and not delivered; 0: none
    std::vector<peer_id> suspects; // their claims do not count from now on
  };
  /// A complete round of the claims that were due.
  /// @param participants its members, those that contribute nothing included.
  /// @param delivered the round's weight: samples of all contributors.
  /// @param own samples that we contributed to it.
  shortfall end_round(const std::vector<peer_id>& participants, double delivered, std::uint64_t own,
                      steady_time now);
  /// The number of peers whose claims do not count.
  [[nodiscard]] std::size_t suspects(steady_time now) const { return suspects_.count(now); }

private:
  struct delivery {
    std::uint64_t most = 0; // in one round
    double speed = 0;       // samples per second, smoothed
  };
  static constexpr std::size_t peers_max = 1'024;

  std::uint64_t target_;
  std::map<peer_id, std::uint64_t> claims_; // toward this epoch; the largest of each peer
  std::map<peer_id, std::uint64_t> due_;    // toward the one before
  std::map<peer_id, delivery> delivered_;
  time_outs suspects_{{milliseconds{2'000}, milliseconds{600'000}, peers_max}};
  steady_time began_;
  double due_seconds_ = 0;
};

} // namespace waggle
