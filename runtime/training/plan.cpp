#include "runtime/training/plan.hpp"

namespace waggle {

namespace {

bool at_boundary(const lane_clock& due, const situation& now) {
  if (now.round_called || now.exhausted || now.hurried)
    return true;
  if (due.counts == lane_clock::unit::each_member && now.members_missing > 0)
    return false;
  bool by_samples = due.counts == lane_clock::unit::swarm_samples;
  if ((by_samples ? now.swarm_samples : now.boundary_steps) < due.every)
    return false;
  return due.grid == 0 || now.time / due.grid > now.boundary_time / due.grid;
}

/// Whether the flight must be merged now; it is awaited if its round is not over.
bool is_ripe(const lane& averages, const situation& now) {
  const auto& [begun, over] = *now.round;
  switch (const auto& overlap = averages.overlap; overlap.ends) {
    case lane_overlap::until::own_steps:
      if (overlap.blocks())
        return !now.searching;
      return now.own_steps >= begun + overlap.steps
             || (over && at_boundary(averages.due, now)); // a faster peer has begun the next round
    case lane_overlap::until::next_boundary:
      return at_boundary(averages.due, now);
    case lane_overlap::until::it_arrives:
      return over;
  }
  return true;
}

bool may_begin(const lane& averages, const situation& now) {
  if (!now.in_group || now.gradient_in_use || !at_boundary(averages.due, now))
    return false;
  bool first_try = now.last_epoch != now.epochs_done;
  // A round that another member called is always joined: it may be in another group than the one
  // of our first try.
  return now.own_samples > 0 || now.exhausted
         || (now.members > 1 && (first_try || now.round_called));
}

} // namespace

next_actions plan_next(const lane& averages, const situation& now) {
  auto finished = [&](std::uint64_t epochs) {
    return now.max_epochs != 0 && epochs >= now.max_epochs;
  };
  bool finishing = finished(now.epochs_done);
  bool ripe = now.round && is_ripe(averages, now);
  bool blocks = averages.overlap.blocks();
  next_actions next;
  next.merge = now.round && now.round->over && (ripe || finishing || now.leaving || now.idle);
  bool flies = now.round && !next.merge;
  next.begin = !flies && !finishing && may_begin(averages, now);
  bool waits = next.begin ? blocks || finished(now.epochs_done + 1) : flies && ripe;
  next.pass = !waits && !finishing && !now.pass_running && !now.leaving;
  return next;
}

} // namespace waggle
