#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/core/ids.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Peers, or hosts, that are not relied on for a while, because they did not deliver what they
/// announced. The time doubles with each further offence, and is as short as at first once one has
/// gone `forgiven_after` times its last time-out without an offence. Not thread-safe.
template <class Key>
class time_outs_of {
public:
  struct limits {
    milliseconds first{1'000};
    milliseconds longest{600'000};
    std::size_t keys_max = 1'024; // ids can be made up: beyond this the one that ends first goes
  };
  static constexpr int forgiven_after = 4;

  explicit time_outs_of(limits how) : limits_(how) {}
  time_outs_of() : time_outs_of(limits{}) {}

  /// An offence of `who`. Returns how long it is not relied on.
  milliseconds add(const Key& who, steady_time now) {
    auto found = entries_.find(who);
    if (found == entries_.end()) {
      if (entries_.size() >= limits_.keys_max)
        entries_.erase(
          std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
            return a.second.until < b.second.until;
          }));
      found = entries_.emplace(who, entry{}).first;
    }
    auto& e = found->second;
    bool forgiven = e.lasts == milliseconds{0} || now - e.until >= forgiven_after * e.lasts;
    e.lasts = forgiven ? limits_.first : std::min(2 * e.lasts, limits_.longest);
    e.until = now + e.lasts;
    return e.lasts;
  }
  [[nodiscard]] bool holds(const Key& who, steady_time now) const {
    auto found = entries_.find(who);
    return found != entries_.end() && now < found->second.until;
  }
  void forget(const Key& who) { entries_.erase(who); }
  /// The number of those whose time-out has not ended.
  [[nodiscard]] std::size_t count(steady_time now) const {
    return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [now](const auto& item) { return now < item.second.until; }));
  }

private:
  struct entry {
    steady_time until;
    milliseconds lasts{0};
  };

  limits limits_;
  std::map<Key, entry> entries_;
};

using time_outs = time_outs_of<peer_id>;

} // namespace waggle
