#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/core/endpoint.hpp"

namespace waggle {

/// What a peer learns from handshakes about the run that it joins. Thread-safe: the I/O thread
/// writes, the main thread reads.
class join_watch {
public:
  explicit join_watch(const std::vector<endpoint>& initial_peers) {
    for (const auto& given : initial_peers)
      addresses_[given] = {given};
  }

  /// A link was made; null: with a peer that has no agreement.
  void linked(const std::shared_ptr<const run_agreement>& theirs) {
    std::lock_guard lock{mutex_};
    linked_ = true;
    if (theirs && known_.size() < agreements_max && known_.insert(theirs->hash()).second)
      news_.push_back(theirs);
  }
  /// An initial peer was given by a name that has these addresses now.
  void resolved(const endpoint& given, const std::vector<endpoint>& addresses) {
    std::lock_guard lock{mutex_};
    if (auto peer = addresses_.find(given); peer != addresses_.end())
      peer->second = {addresses.begin(), addresses.end()};
  }
  void disagreed(const endpoint& where, const failure& why) {
    std::lock_guard lock{mutex_};
    for (const auto& [given, addresses] : addresses_)
      if (addresses.contains(where)) {
        ++refusals_[where];
        refused_ = why;
        return;
      }
  }

  /// The last refusal, once every initial peer has refused our options and no peer has accepted
  /// them. A name has refused when all of its addresses have; or one of them repeatedly, so that
  /// the others have had the time to answer.
  [[nodiscard]] std::optional<failure> refused_by_all() const {
    std::lock_guard lock{mutex_};
    auto times = [this](const endpoint& where) {
      auto known = refusals_.find(where);
      return known != refusals_.end() ? known->second : 0;
    };
    auto refused = [&](const auto& peer) {
      const auto& all = peer.second;
      return std::ranges::all_of(all, [&](const auto& a) { return times(a) > 0; })
             || std::ranges::any_of(all,
                                    [&](const auto& a) { return times(a) >= refusals_enough; });
    };
    return !linked_ && std::ranges::all_of(addresses_, refused) ? refused_ : std::nullopt;
  }
  /// An agreement that was seen for the first time. Each is returned once, and only the first few.
  [[nodiscard]] std::shared_ptr<const run_agreement> take_news() {
    std::lock_guard lock{mutex_};
    if (news_.empty())
      return nullptr;
    auto next = news_.front();
    news_.erase(news_.begin());
    return next;
  }

private:
  static constexpr std::size_t agreements_max = 4;
  /// Attempts at one address, with their pauses, that take longer than a first one at each other.
  static constexpr unsigned refusals_enough = 3;

  mutable std::mutex mutex_;
  std::map<endpoint, std::set<endpoint>> addresses_; // of the initial peers
  std::map<endpoint, unsigned> refusals_;            // by those addresses
  bool linked_ = false;
  std::optional<failure> refused_;
  std::set<digest> known_;
  std::vector<std::shared_ptr<const run_agreement>> news_;
};

} // namespace waggle
