#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/core/history.hpp"
#include "runtime/training/missed_updates.hpp"

namespace waggle {

/// Where a peer stands in the run: the epoch of which history its group is at, and which one its
/// own model holds. The two are the same while it is in step. A peer that has just entered a group
/// keeps what the group decides until it has the state that this belongs to.
///
/// "Held" is what the model holds once the updates that were handed out are applied to it.
/// Not thread-safe.
class run_position {
public:
  /// An update to apply now, in this order.
  struct step {
    missed_update update;
    history after;
  };
  enum class trouble : std::uint8_t {
    none,
    no_room, // for another update: all are forgotten, a later state is needed
    gap      // the state does not lead to the group's epoch: another one is needed
  };
  struct outcome {
    std::vector<step> apply;
    trouble what = trouble::none;
    bool caught_up = false; // from not in step to in step
  };

  explicit run_position(std::uint64_t missed_bytes_max) : missed_(missed_bytes_max) {}

  /// Of the next round.
  [[nodiscard]] const history& line() const { return line_; }
  [[nodiscard]] epoch_id epoch() const { return epoch_; }
  [[nodiscard]] const history& held_line() const { return held_.line; }
  [[nodiscard]] epoch_id held_epoch() const { return held_.epoch; }
  [[nodiscard]] bool in_step() const { return in_step_; }
  /// The epoch from which on all updates are here. REQUIRES: not in step.
  [[nodiscard]] epoch_id first_kept() const { return epoch_id{epoch_.value() - missed_.size()}; }
  [[nodiscard]] std::uint64_t kept_bytes() const { return missed_.bytes(); }
  /// A state is here that is ahead of the group.
  [[nodiscard]] bool waits_for_group() const { return loaded_.has_value(); }

  /// The model was made, or resumed from a checkpoint.
  void begin(const history& line, epoch_id epoch);
  /// Our own state goes on as `line`, in a group that begins with us.
  void found(const history& line);
  /// A group let us in. In step if our state is of its epoch.
  void enter(const digest& branch, std::uint64_t work, epoch_id epoch);
  /// Out of the group, back to what the model holds.
  void leave();
  /// What the model holds cannot be relied on: a state has to be taken.
  void distrust();

  /// The group ended its epoch. REQUIRES: it is the update of epoch().
  outcome end_epoch(missed_update update);
  /// The model holds this state now.
  outcome take_state(const history& line, epoch_id epoch);

private:
  struct held_state {
    history line;
    epoch_id epoch;
  };

  outcome catch_up();

  history line_;
  epoch_id epoch_;
  held_state held_;
  bool in_step_ = true;
  missed_updates missed_;
  std::optional<held_state> loaded_; // of our group's history, but of a later epoch
};

} // namespace waggle
