#include "runtime/core/filling.hpp"

#include <algorithm>
#include <iterator>

namespace waggle {

void filling::filled(std::size_t begin, std::size_t end) {
  {
    std::lock_guard lock{mutex_};
    if (phase_ != phase::open || begin >= end)
      return;
    auto next = filled_.upper_bound(begin);
    if (next != filled_.begin())
      if (auto before = std::prev(next); before->second >= begin)
        next = before;
    while (next != filled_.end() && next->first <= end) {
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = filled_.erase(next);
    }
    filled_.emplace(begin, end);
  }
  tell();
}

void filling::complete() {
  end(phase::complete);
}

void filling::fail() {
  end(phase::failed);
}

bool filling::has(std::size_t begin, std::size_t end) const {
  std::lock_guard lock{mutex_};
  if (phase_ != phase::open)
    return phase_ == phase::complete;
  auto next = filled_.upper_bound(begin);
  return next != filled_.begin() && std::prev(next)->second >= end;
}

bool filling::failed() const {
  std::lock_guard lock{mutex_};
  return phase_ == phase::failed;
}

bool filling::ended() const {
  std::lock_guard lock{mutex_};
  return phase_ != phase::open;
}

void filling::listen(std::function<void()> changed) {
  auto shared = std::make_shared<const std::function<void()>>(std::move(changed));
  std::lock_guard lock{mutex_};
  changed_ = std::move(shared);
}

void filling::end(phase how) {
  {
    std::lock_guard lock{mutex_};
    if (phase_ != phase::open)
      return;
    phase_ = how;
  }
  tell();
}

void filling::tell() {
  std::shared_ptr<const std::function<void()>> changed;
  {
    std::lock_guard lock{mutex_};
    changed = changed_;
  }
  if (changed && *changed)
    (*changed)();
}

} // namespace waggle
