#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/core/history.hpp"
#include "runtime/training/missed_updates.hpp"

namespace waggle {

/// The position of a peer in the run: the epoch and history of its group, and those that its own
/// model holds. The two are equal while the peer is in step. A peer that has just entered a group
/// keeps the updates that the group decides until it has downloaded the state to which they apply.
///
/// "Held" is the state of the model after all updates that were returned for application. Not
/// thread-safe.
class run_position {
public:
  /// An update to apply now, in this order.
  struct step {
    missed_update update;
    history after;
  };
  enum class trouble : std::uint8_t {
    none,
    no_room, // for another update: all were dropped, a later state is needed
    gap      // the updates do not lead from the state to the group's epoch: another state is needed
  };
  struct outcome {
    std::vector<step> apply;
    trouble what = trouble::none;
    bool caught_up = false; // the peer was not in step and is now
  };

  /// `tolerance`: a state of the group's history that is so many epochs behind the group counts as
  /// in step. 0, unless the parameters of the peers are only approximately equal anyway.
  /// `many_groups`: epochs also end in groups that this peer is not in. It keeps no updates while
  /// it downloads a state, and the state counts if it is within the tolerance once it is there.
  explicit run_position(std::uint64_t missed_bytes_max, std::uint64_t tolerance = 0,
                        bool many_groups = false)
    : tolerance_(tolerance), many_groups_(many_groups), missed_(missed_bytes_max) {}

  /// The history and epoch of the next round.
  [[nodiscard]] const history& past() const { return past_; }
  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const history& held_past() const { return held_.past; }
  [[nodiscard]] epoch_id held_epoch() const { return held_.epoch; }
  [[nodiscard]] bool in_step() const { return in_step_; }
  /// The first epoch of which a state can be brought to epoch(). REQUIRES: not in step.
  [[nodiscard]] epoch_id first_kept() const {
    auto behind = many_groups_ ? std::min(tolerance_, epoch_.value()) : missed_.size();
    return epoch_id{epoch_.value() - behind};
  }
  /// A state was loaded that is ahead of the group.
  [[nodiscard]] bool waits_for_group() const { return loaded_.has_value(); }

  /// The model was created, or resumed from a checkpoint.
  void begin(const history& past, epoch_id epoch);
  /// Our own state continues as `past`, in a group that we begin.
  void found(const history& past);
  /// We entered a group, or ours has gone on to a later epoch. In step if our state belongs to its
  /// epoch, or is within the tolerance: then the state is of the group's epoch from now on.
  void enter(const digest& branch, std::uint64_t work, epoch_id epoch);
  /// We left the group: the position is again that of the model.
  void leave();
  /// The state of the model cannot be relied on: another one has to be downloaded.
  void distrust();
  /// The state of the model is too old, whatever its epoch, to enter a group or stay in one without
  /// a download. If there is no group any more, it is as good as any (`found`).
  void outdate();

  /// The group ended its epoch. REQUIRES: `update` ends epoch().
  outcome end_epoch(missed_update update);
  /// The model holds this state now.
  outcome take_state(const history& past, epoch_id epoch);

private:
  struct held_state {
    history past;
    epoch_id epoch;
  };

  outcome catch_up();
  outcome accept(const held_state& state);

  std::uint64_t tolerance_;
  bool many_groups_;
  history past_;
  epoch_id epoch_;
  held_state held_;
  bool in_step_ = true;
  bool outdated_ = false; // held_ is: see outdate
  missed_updates missed_;
  std::optional<held_state> loaded_; // of our group's history, but of a later epoch
};

} // namespace waggle
