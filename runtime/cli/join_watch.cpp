#include "runtime/cli/join_watch.hpp"

namespace waggle {

namespace {

constexpr std::size_t agreements_max = 4;

} // namespace

void join_watch::linked(const std::shared_ptr<const run_agreement>& theirs) {
  std::lock_guard lock{mutex_};
  linked_ = true;
  if (theirs && known_.size() < agreements_max && known_.insert(theirs->hash()).second)
    news_.push_back(theirs);
}

void join_watch::disagreed(const endpoint& where, const failure& why) {
  std::lock_guard lock{mutex_};
  if (silent_.erase(where) > 0)
    refused_ = why;
}

std::optional<failure> join_watch::refused_by_all() const {
  std::lock_guard lock{mutex_};
  return linked_ || !silent_.empty() ? std::nullopt : refused_;
}

std::shared_ptr<const run_agreement> join_watch::take_news() {
  std::lock_guard lock{mutex_};
  if (news_.empty())
    return nullptr;
  auto next = news_.front();
  news_.erase(news_.begin());
  return next;
}

} // namespace waggle
