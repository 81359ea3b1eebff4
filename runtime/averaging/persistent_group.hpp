#pragma once

#include <optional>
#include <utility>

#include "runtime/averaging/group_bandwidths.hpp"

namespace waggle {

/// Members that finished a round together may start the next one without matchmaking: each of them
/// derives the same plan from the last one. They exchange no messages for this, so each of them
/// must also detect that a member does not take part: the round then fails or shrinks like any
/// other.
///
/// When bandwidths have changed, the leader may repartition the following rounds; only the leader
/// may announce that. It does so before it begins the next round, so no member can finish that
/// round with the leader under the old partition. A member that receives the announcement late
/// cancels the round that it began.
///
/// The next round's id is a hash of the last one's, of the epoch, and of a new partition, so that
/// members with different plans do not meet in one round. Not thread-safe.
class persistent_group {
public:
  /// All of `plan`'s members finished its round.
  void establish(const round_plan& plan) { last_ = plan; }
  void dissolve() {
    last_.reset();
    repartition_.reset();
  }

  /// The terms that matchmaking agreed on with `plan`; they apply to the rounds from now on.
  void agree_on(const round_plan& plan, partition_terms terms) {
    bandwidths_.assign(plan, std::exchange(terms.bandwidths, {}));
    terms_ = std::move(terms);
  }
  /// For the leader of the group whose last round is, or will be, that of `plan`: the current
  /// bandwidth of a member. Returns the new partition of the rounds after `plan`, if it must be
  /// announced to all.
  std::optional<vector_partition> on_bandwidth(const round_plan& plan, const peer_id& member,
                                               std::optional<double> bandwidth);
  /// The leader announced this partition for the rounds after `round`, which may still run. `plan`:
  /// that of `round`, or of the next one. If `check_partition` refuses it, the group ends after
  /// `round`, because its next round is not known here.
  status on_partition(const round_id& round, const round_plan& plan, vector_partition how,
                      std::size_t self);

  /// The next round for a vector that is encoded by `codecs`, if the group persists and fits.
  /// `expected_peers`: the number of peers that the caller expects, itself included; 0: any number.
  [[nodiscard]] std::optional<round_plan> next(epoch_id epoch, const codec_plan& codecs,
                                               std::uint32_t expected_peers) const;

  /// The id that the next round would have without a new partition; nothing if there is none.
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
    return last_ && repartition_ && repartition_->after == last_->id;
  }

  std::optional<round_plan> last_;
  partition_terms terms_;
  group_bandwidths bandwidths_; // empty: we do not lead
  std::optional<new_partition> repartition_;
};

} // namespace waggle
