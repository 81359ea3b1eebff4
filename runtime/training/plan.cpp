#include "runtime/training/plan.hpp"

#include <utility>

namespace waggle {

namespace {

using kind = action::kind;

class planner {
public:
  planner(const strategy& strategy, const situation& now)
    : averages_(strategy.averages), now_(now), round_(now.round) {
    if (now.offered && strategy.inner == inner_rule::step)
      add(kind::inner_step);
  }

  plan make() && {
    bool ripe = is_ripe();
    bool late = ripe && !round_->outcome;
    if (ripe && !late)
      settle();
    if (!left_out_ && !finishing() && may_begin())
      begin();
    if (ended_)
      add(kind::end_epoch);
    if (left_out_)
      return std::move(plan_); // everything else depends on the state that is downloaded
    bool blocks = averages_.overlap.blocks() && !now_.searching;
    if (round_ && round_->outcome && (blocks || finishing()))
      settle();
    if (round_ && (late || blocks || finishing()))
      add(kind::await);
    else if (finishing())
      add(kind::finish);
    else if (!now_.pass_running)
      add(kind::hold);
    return std::move(plan_);
  }

private:
  void add(kind what, verdict why = verdict::skip) { plan_.push_back({what, why}); }

  [[nodiscard]] bool finishing() const {
    return now_.max_epochs != 0 && now_.epochs_done + (ended_ ? 1 : 0) >= now_.max_epochs;
  }

  [[nodiscard]] bool at_boundary() const {
    if (now_.round_called || now_.exhausted)
      return true;
    const auto& due = averages_.due;
    if (due.counts == lane_clock::unit::each_member && now_.members_missing > 0)
      return false;
    bool by_samples = due.counts == lane_clock::unit::swarm_samples;
    if ((by_samples ? now_.swarm_samples : now_.boundary_steps) < due.every)
      return false;
    return due.grid == 0 || now_.time / due.grid > now_.boundary_time / due.grid;
  }

  /// Whether the flight must be merged or given up now; it is awaited if its round is not over.
  [[nodiscard]] bool is_ripe() const {
    if (!round_)
      return false;
    if (round_->outcome == verdict::left_out)
      return true;
    const auto& overlap = averages_.overlap;
    switch (overlap.ends) {
      case lane_overlap::until::own_steps:
        if (overlap.blocks() && now_.searching)
          return false;
        if (round_->outcome && !overlap.blocks() && at_boundary())
          return true; // a faster peer has begun the next round
        return now_.own_steps >= round_->begun + overlap.steps;
      case lane_overlap::until::next_boundary:
        return at_boundary();
      case lane_overlap::until::it_arrives:
        return round_->outcome.has_value();
    }
    return true;
  }

  void settle() {
    auto outcome = *std::exchange(round_, std::nullopt)->outcome;
    if (outcome == verdict::merge)
      add(kind::merge);
    else
      add(kind::give_up, outcome);
    left_out_ = outcome == verdict::left_out;
    bool stepped = outcome == verdict::merge || outcome == verdict::own_gradient;
    ended_ |= stepped && averages_.overlap.blocks();
  }

  [[nodiscard]] bool may_begin() const {
    if (round_ || !now_.in_group)
      return false;
    if (now_.gradient_in_use)
      return false;
    if (ended_ || !at_boundary()) // the samples in `now_` belong to the epoch that ended
      return false;
    bool first_try = now_.last_epoch != now_.epochs_done;
    // A round that another member called is always joined: it may be in another group than the one
    // of our first try.
    return now_.own_samples > 0 || now_.exhausted
           || (now_.members > 1 && (first_try || now_.round_called));
  }

  void begin() {
    add(kind::begin);
    round_ = flying_round{now_.own_steps, std::nullopt};
    ended_ |= !averages_.overlap.blocks();
  }

  const lane& averages_;
  const situation& now_;
  std::optional<flying_round> round_;
  plan plan_;
  bool ended_ = false;
  bool left_out_ = false;
};

} // namespace

plan on_offer(const strategy& strategy, const situation& now) {
  return planner{strategy, now}.make();
}

} // namespace waggle
