#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "runtime/core/ids.hpp"

namespace waggle {

/// Whether a state is too old because others averaged without its peer. Where a run averages in
/// many groups, a peer whose searches keep failing follows the run's epochs by number only, and
/// drifts away from the others. Beyond the tolerance (`--max-epoch-difference`) it must download a
/// state.
///
/// If nobody averages, no state is better than this one. So the state counts as outdated only once
/// two of the others have more work than when it went beyond the tolerance: a mean has two members
/// at least. Not thread-safe.
class merge_age {
public:
  struct other_peer {
    std::uint64_t work = 0; // samples in its means
    bool known = false;     // we have averaged with it
  };
  using others = std::map<peer_id, other_peer>;

  /// @param tolerance epochs.
  explicit merge_age(std::uint64_t tolerance) : tolerance_(tolerance) {}

  /// A mean with others ended the epoch before `epoch`, or a state of `epoch` was loaded.
  void merged(epoch_id epoch) {
    merged_ = epoch;
    before_.clear();
    averaging_.clear();
  }
  /// @param now those that train our history and are connected. If we know some of them, two that
  /// we do not know do not suffice.
  /// After true, work is compared with `now`.
  [[nodiscard]] bool is_outdated(epoch_id epoch, const others& now) {
    if (epoch.value() <= merged_.value() + tolerance_) {
      before_.clear();
      return false;
    }
    // Whoever was away may have had its work before.
    std::erase_if(before_, [&](const auto& item) { return !now.contains(item.first); });
    std::set<peer_id> grown;
    bool known_one = false;
    for (const auto& [who, peer] : now)
      if (auto first = before_.try_emplace(who, peer.work).first; peer.work > first->second) {
        grown.insert(who);
        known_one = known_one || peer.known;
      }
    bool know_some = std::ranges::any_of(now, [](const auto& item) { return item.second.known; });
    if (grown.size() < 2 || (know_some && !known_one))
      return false;
    before_.clear();
    averaging_ = std::move(grown);
    return true;
  }
  /// Those that averaged when is_outdated was last true, whose states are therefore better than
  /// that of another peer that finds no group. Empty after `merged`.
  [[nodiscard]] const std::set<peer_id>& averaging() const { return averaging_; }

private:
  std::uint64_t tolerance_;
  epoch_id merged_;
  /// The work of those that have been connected since the state is beyond the tolerance, or since
  /// they are.
  std::map<peer_id, std::uint64_t> before_;
  std::set<peer_id> averaging_;
};

} // namespace waggle
