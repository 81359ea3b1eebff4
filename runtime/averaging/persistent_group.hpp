#pragma once

#include <optional>

#include "runtime/averaging/partition.hpp"

namespace waggle {

/// Members that finished a round together may start the next one without matchmaking: everybody
/// derives the same plan from the last one. Nothing is agreed on beforehand, so everybody also has
/// to notice when somebody does not come along: the round then fails or shrinks like any other.
///
/// The leader may repartition the rounds that follow one when lines have changed, and is the only
/// one to say so. It says so before it begins the next one, which therefore nobody can finish by
/// the old partition with it; whoever hears of it late gives up what it began.
///
/// The next round's id is a hash of the last one's, of the epoch, and of a new partition, so that
/// members with different plans do not meet in one round. Not thread-safe.
class persistent_group {
public:
  /// All of `plan`'s members finished its round.
  void establish(const round_plan& plan) { last_ = plan; }
  void dissolve() {
    last_.reset();
    anew_.reset();
  }

  /// What matchmaking agreed on; counts for the rounds from now on.
  void agree_on(partition_terms terms) { terms_ = std::move(terms); }
  /// We lead the group whose last round is, or will be, `plan`'s: what the line of a member carries
  /// now. Returns how the rounds after `plan` are divided now, if that is to be said to all.
  std::optional<vector_partition> on_bandwidth(const round_plan& plan, std::size_t member,
                                               std::optional<double> bandwidth);
  /// The leader said that the rounds after `round`, which may still run, are divided like this;
  /// `plan`: that of `round`, or of the next one. If `check_partition` refuses it, the group ends
  /// after `round`: its next round is none that we know.
  status on_partition(const round_id& round, const round_plan& plan, vector_partition how,
                      std::size_t self);

  /// The next round for a vector that travels by `codecs`, if the group stands and fits.
  /// `expected_peers`: how many the caller wants to meet, itself included; 0: whoever is there.
  [[nodiscard]] std::optional<round_plan> next(epoch_id epoch, const codec_plan& codecs,
                                               std::uint32_t expected_peers) const;

  /// What the next round would have been without a new partition; nothing if there is none.
  [[nodiscard]] std::optional<round_id> replaced(epoch_id epoch) const;

  /// The plan of the last round; its id names the group to its members.
  [[nodiscard]] const std::optional<round_plan>& last() const { return last_; }
  [[nodiscard]] bool contains(const peer_id& peer) const;

private:
  struct new_partition {
    round_id after;
    std::optional<vector_partition> how; // nothing: no round that we take part in
  };

  [[nodiscard]] bool is_repartitioned() const {
    return last_ && anew_ && anew_->after == last_->id;
  }

  std::optional<round_plan> last_;
  partition_terms terms_;
  std::optional<new_partition> anew_;
};

} // namespace waggle
