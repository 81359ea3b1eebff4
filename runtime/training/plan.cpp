#include "runtime/training/plan.hpp"

#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

using kind = action::kind;

class planner {
public:
  planner(const strategy& strategy, const situation& now) : lanes_(strategy.lanes), now_(now) {
    WAGGLE_CHECK(now.lanes.size() == lanes_.size(), "a state for every lane");
    for (const auto& state : now.lanes)
      tracks_.push_back({state.under_way, false});
    if (now.offered && strategy.inner == inner_rule::step)
      add(kind::inner_step);
  }

  plan make() && {
    settle_ripe();
    if (!left_out_ && !stalled_ && !finishing() && now_.in_group)
      for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (may_begin(i))
          begin(i);
    if (ended_)
      add(kind::end_epoch);
    if (left_out_)
      return std::move(plan_); // everything else depends on the state that is downloaded
    bool awaiting = settle_what_blocks();
    if (!awaiting && finishing())
      add(kind::finish);
    else if (!awaiting && !now_.pass_running)
      add(kind::hold);
    return std::move(plan_);
  }

private:
  struct track {
    std::optional<lane_round> under_way;
    bool awaited = false; // it is ripe and its round is not over
  };

  void add(kind what, std::size_t lane = 0, verdict why = verdict::skip) {
    plan_.push_back({what, lane, why});
  }

  [[nodiscard]] bool finishing() const {
    return now_.max_epochs != 0 && now_.epochs_done + (ended_ ? 1 : 0) >= now_.max_epochs;
  }

  [[nodiscard]] bool makes_boundaries(std::size_t i) const {
    return lanes_[i].due.makes_boundaries();
  }

  [[nodiscard]] bool at_boundary(std::size_t i) const {
    if (now_.round_called)
      return true;
    const auto& due = lanes_[i].due;
    if (due.counts == lane_clock::unit::each_member && now_.members_missing > 0)
      return false;
    bool by_samples = due.counts == lane_clock::unit::swarm_samples;
    if ((by_samples ? now_.swarm_samples : now_.boundary_steps) < due.every)
      return false;
    return due.grid == 0 || now_.time / due.grid > now_.boundary_time / due.grid;
  }

  /// Whether the flight must be merged or given up now; it is awaited if its round is not over.
  [[nodiscard]] bool is_ripe(std::size_t i) const {
    const auto& round = tracks_[i].under_way;
    if (!round)
      return false;
    if (round->outcome == verdict::left_out)
      return true;
    const auto& overlap = lanes_[i].overlap;
    switch (overlap.ends) {
      case lane_overlap::until::own_steps:
        if (overlap.blocks() && now_.searching)
          return false;
        if (round->outcome && makes_boundaries(i) && !overlap.blocks() && at_boundary(i))
          return true; // a faster peer has begun the next round
        return now_.own_steps >= round->begun + overlap.steps;
      case lane_overlap::until::next_boundary:
        return at_boundary(i);
      case lane_overlap::until::it_arrives:
        return round->outcome.has_value();
    }
    return true;
  }

  void settle_ripe() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      if (!is_ripe(i))
        continue;
      if (tracks_[i].under_way->outcome)
        settle(i);
      else
        stalled_ = tracks_[i].awaited = true;
    }
  }

  /// Returns whether a round is awaited.
  bool settle_what_blocks() {
    bool awaiting = false;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const auto& [round, awaited] = tracks_[i];
      bool blocks = lanes_[i].overlap.blocks() && !now_.searching;
      if (!round || !(awaited || blocks || finishing()))
        continue;
      if (round->outcome) {
        settle(i);
      } else {
        add(kind::await, i);
        awaiting = true;
      }
    }
    return awaiting;
  }

  void settle(std::size_t i) {
    auto outcome = *std::exchange(tracks_[i].under_way, std::nullopt)->outcome;
    if (outcome == verdict::merge)
      add(kind::merge, i);
    else
      add(kind::give_up, i, outcome);
    left_out_ |= outcome == verdict::left_out;
    bool stepped = outcome == verdict::merge || outcome == verdict::own_gradient;
    ended_ |= stepped && makes_boundaries(i) && lanes_[i].overlap.blocks();
  }

  [[nodiscard]] bool may_begin(std::size_t i) const {
    if (tracks_[i].under_way || now_.members < lanes_[i].quorum)
      return false;
    if (now_.gradient_in_use && lanes_[i].what != lane_content::parameters)
      return false;
    return makes_boundaries(i) ? epoch_is_due(i) : grid_is_due(i);
  }

  [[nodiscard]] bool epoch_is_due(std::size_t i) const {
    if (ended_ || !at_boundary(i)) // the samples in `now_` belong to the epoch that ended
      return false;
    bool first_try = now_.lanes[i].last_epoch != now_.epochs_done;
    // A round that another member called is always joined: it may be in another group than the one
    // of our first try.
    return now_.own_samples > 0 || (now_.members > 1 && (first_try || now_.round_called));
  }

  /// No round was begun at the newest step at which the lane was due. If a round was awaited at
  /// that step, the lane begins later.
  [[nodiscard]] bool grid_is_due(std::size_t i) const {
    const auto& due = lanes_[i].due;
    if (now_.own_steps < due.phase)
      return false;
    auto newest = now_.own_steps - (now_.own_steps - due.phase) % due.every;
    return newest > now_.lanes[i].last_step.value_or(0);
  }

  void begin(std::size_t i) {
    add(kind::begin, i);
    tracks_[i].under_way = lane_round{now_.own_steps, std::nullopt};
    ended_ |= makes_boundaries(i) && !lanes_[i].overlap.blocks();
  }

  const std::vector<lane>& lanes_;
  const situation& now_;
  std::vector<track> tracks_;
  plan plan_;
  bool stalled_ = false; // a ripe flight has no result yet
  bool ended_ = false;
  bool left_out_ = false;
};

} // namespace

plan on_offer(const strategy& strategy, const situation& now) {
  return planner{strategy, now}.make();
}

} // namespace waggle
