#pragma once

#include <optional>

#include "runtime/averaging/round_plan.hpp"

namespace waggle {

/// Members that finished a round together may start the next one without matchmaking: everybody
/// derives the same plan from the last one. Nothing is agreed on beforehand, so everybody also has
/// to notice when somebody does not come along: the round then fails or shrinks like any other.
///
/// The next round's id is a hash of the last one's and of the epoch, so that members at different
/// epochs do not meet in one round. Not thread-safe.
class standing_group {
public:
  /// All of `plan`'s members finished its round.
  void establish(const round_plan& plan) { last_ = plan; }
  void dissolve() { last_.reset(); }

  /// The next round for a vector that travels by `codecs`, if the group stands and fits.
  /// `expected_peers`: how many the caller wants to meet, itself included; 0: whoever is there.
  [[nodiscard]] std::optional<round_plan> next(epoch_id epoch, const codec_plan& codecs,
                                               std::uint32_t expected_peers) const;

  /// The plan of the last round; its id names the group to its members.
  [[nodiscard]] const std::optional<round_plan>& last() const { return last_; }
  [[nodiscard]] bool contains(const peer_id& peer) const;

private:
  std::optional<round_plan> last_;
};

} // namespace waggle
