#include "actors/service/averager_table.hpp"

namespace waggle {

void averager_table::add(entry made) {
  std::lock_guard guard{mutex_};
  auto name = made.options.name;
  all_.insert_or_assign(std::move(name), std::move(made));
}

void averager_table::remove(const std::string& name) {
  std::lock_guard guard{mutex_};
  all_.erase(name);
}

result<averager_table::entry> averager_table::find(const std::string& name) const {
  std::lock_guard guard{mutex_};
  if (auto found = all_.find(name); found != all_.end())
    return found->second;
  return failure{ec::bad_config, "this peer has no averager '" + name + "'"};
}

bool averager_table::begin_round() {
  std::lock_guard guard{mutex_};
  rounds_ += paused_ ? 0 : 1;
  return !paused_;
}

void averager_table::end_round() {
  std::lock_guard guard{mutex_};
  if (--rounds_ == 0 && paused_)
    quit_groups();
}

void averager_table::pause() {
  std::lock_guard guard{mutex_};
  paused_ = true;
  if (rounds_ == 0)
    quit_groups();
}

void averager_table::resume() {
  std::lock_guard guard{mutex_};
  paused_ = false;
}

bool averager_table::is_paused() const {
  std::lock_guard guard{mutex_};
  return paused_;
}

/// REQUIRES: mutex_ is held, and no round runs, which this would cancel.
void averager_table::quit_groups() const {
  for (const auto& [name, each] : all_)
    caf::anon_send(each.actors.group, quit_group{});
}

} // namespace waggle
