#include "runtime/cli/join_watch.hpp"

#include <algorithm>

namespace waggle {

namespace {

constexpr std::size_t agreements_max = 4;
/// Attempts at one address, with their pauses, that take longer than a first one at each other.
constexpr unsigned refusals_enough = 3;

} // namespace

void join_watch::linked(const std::shared_ptr<const run_agreement>& theirs) {
  std::lock_guard lock{mutex_};
  linked_ = true;
  if (theirs && known_.size() < agreements_max && known_.insert(theirs->hash()).second)
    news_.push_back(theirs);
}

void join_watch::resolved(const endpoint& given, const std::vector<endpoint>& addresses) {
  std::lock_guard lock{mutex_};
  if (auto peer = addresses_.find(given); peer != addresses_.end())
    peer->second = {addresses.begin(), addresses.end()};
}

void join_watch::disagreed(const endpoint& where, const failure& why) {
  std::lock_guard lock{mutex_};
  for (const auto& [given, addresses] : addresses_)
    if (addresses.contains(where)) {
      ++refusals_[where];
      refused_ = why;
      return;
    }
}

std::optional<failure> join_watch::refused_by_all() const {
  std::lock_guard lock{mutex_};
  auto times = [this](const endpoint& where) {
    auto known = refusals_.find(where);
    return known != refusals_.end() ? known->second : 0;
  };
  auto refused = [&](const auto& peer) {
    const auto& all = peer.second;
    return std::ranges::all_of(all, [&](const auto& a) { return times(a) > 0; })
           || std::ranges::any_of(all, [&](const auto& a) { return times(a) >= refusals_enough; });
  };
  return !linked_ && std::ranges::all_of(addresses_, refused) ? refused_ : std::nullopt;
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
