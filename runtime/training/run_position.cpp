#include "runtime/training/run_position.hpp"

#include "runtime/core/check.hpp"

namespace waggle {

void run_position::begin(const history& past, epoch_id epoch) {
  past_ = past;
  epoch_ = epoch;
  held_ = {past, epoch};
  in_step_ = true;
  outdated_ = false;
}

void run_position::found(const history& past) {
  past_ = past;
  held_ = {past_, epoch_};
  outdated_ = false;
}

void run_position::enter(const digest& branch, std::uint64_t work, epoch_id epoch) {
  in_step_ = !outdated_ && !branch.is_zero() && held_.past.branch == branch && held_.epoch <= epoch
             && epoch.value() - held_.epoch.value() <= tolerance_;
  if (in_step_) {
    if (held_.epoch != epoch)
      held_.past.work = work;
    held_.epoch = epoch;
    past_ = held_.past;
    epoch_ = epoch;
    return;
  }
  past_ = {branch, {}, {}, work};
  epoch_ = epoch;
  missed_.clear();
  loaded_.reset();
}

void run_position::leave() {
  past_ = held_.past;
  epoch_ = held_.epoch;
  in_step_ = true;
  missed_.clear();
  loaded_.reset();
}

void run_position::distrust() {
  held_.past = {};
  leave();
}

void run_position::outdate() {
  outdated_ = true;
  in_step_ = false;
}

run_position::outcome run_position::end_epoch(missed_update update) {
  WAGGLE_CHECK(update.epoch == epoch_, std::to_string(update.epoch.value()));
  past_ = update.after(past_);
  epoch_ = epoch_.next();
  if (in_step_) {
    held_ = {past_, epoch_};
    outcome out;
    out.apply.push_back({std::move(update), past_});
    return out;
  }
  if (!missed_.add(std::move(update)))
    return {{}, trouble::no_room, false};
  return catch_up();
}

run_position::outcome run_position::take_state(const history& past, epoch_id epoch) {
  held_ = {past, epoch};
  outdated_ = false;
  if (in_step_) { // we are in no group, or need no state any more
    past_ = past;
    epoch_ = epoch;
    return {};
  }
  if (many_groups_)
    return accept(held_);
  loaded_ = held_;
  return catch_up();
}

/// The state is of the later one of its epoch and the group's from now on, unless it is too old.
run_position::outcome run_position::accept(const held_state& state) {
  bool old = state.epoch < epoch_ && epoch_.value() - state.epoch.value() > tolerance_;
  if (old || state.past.branch != past_.branch)
    return {{}, trouble::gap, false};
  past_ = state.past;
  epoch_ = std::max(epoch_, state.epoch);
  held_ = {past_, epoch_};
  in_step_ = true;
  return {{}, trouble::none, true};
}

/// Applies the updates of the group since the state that was loaded.
run_position::outcome run_position::catch_up() {
  if (!loaded_ || loaded_->epoch > epoch_)
    return {}; // the donor was ahead: the rounds until its epoch end without us
  auto from = *std::exchange(loaded_, std::nullopt);
  auto updates = missed_.take(from.epoch, epoch_);
  outcome out;
  auto past = from.past;
  // The state may be of another history than these updates: it was loaded while we changed from one
  // group to another, or its donor is on the other side of a fork.
  bool leads = updates.has_value();
  for (std::size_t i = 0; leads && i < updates->size(); ++i) {
    auto& update = (*updates)[i];
    leads = update.before == past.branch;
    past = update.after(past);
    out.apply.push_back({std::move(update), past});
  }
  if (!leads || past.branch != past_.branch)
    return {{}, trouble::gap, false};
  past_ = past;
  held_ = {past_, epoch_};
  in_step_ = true;
  out.caught_up = true;
  return out;
}

} // namespace waggle
