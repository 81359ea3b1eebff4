#include "runtime/core/time_outs.hpp"

#include <algorithm>

namespace waggle {

milliseconds time_outs::add(const peer_id& peer, steady_time now) {
  auto found = entries_.find(peer);
  if (found == entries_.end()) {
    if (entries_.size() >= limits_.peers_max)
      entries_.erase(
        std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
          return a.second.until < b.second.until;
        }));
    found = entries_.emplace(peer, entry{}).first;
  }
  auto& e = found->second;
  bool forgiven = e.lasts == milliseconds{0} || now - e.until >= forgiven_after * e.lasts;
  e.lasts = forgiven ? limits_.first : std::min(2 * e.lasts, limits_.longest);
  e.until = now + e.lasts;
  return e.lasts;
}

bool time_outs::holds(const peer_id& peer, steady_time now) const {
  auto found = entries_.find(peer);
  return found != entries_.end() && now < found->second.until;
}

std::size_t time_outs::count(steady_time now) const {
  return static_cast<std::size_t>(std::count_if(
    entries_.begin(), entries_.end(), [now](const auto& item) { return now < item.second.until; }));
}

} // namespace waggle
