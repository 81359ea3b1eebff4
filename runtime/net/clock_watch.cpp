#include "runtime/net/clock_watch.hpp"

#include <vector>

#include "runtime/core/median.hpp"

namespace waggle::net {

std::optional<std::string> clock_watch::compared(const peer_id& peer, swarm_clock::duration offset,
                                                 steady_time now) {
  if (!peers_.contains(peer))
    make_room();
  auto& of = peers_[peer];
  of.offset = offset;
  of.seen = now;
  auto level = beyond(offset, options_.limits.refused)      ? told::refused
               : beyond(offset, options_.limits.noticeable) ? told::noticeable
                                                            : told::nothing;
  if (auto own = own_clock()) {
    // It explains the offsets of the peers, which need no sentences of their own.
    of.said = std::max(of.said, level);
    if (own_told_ && now - *own_told_ < options_.repeat)
      return std::nullopt;
    own_told_ = now;
    return own;
  }
  if (level <= of.said)
    return std::nullopt;
  of.said = level;
  auto what = "the clock of peer " + short_name(peer) + " is " + how_far(offset)
              + " the clock of this machine";
  return level == told::refused ? "no link with peer " + short_name(peer) + ": "
                                    + clock_sentence(offset, options_.limits.refused)
                                : what + ": records may expire too early; set both, e.g. with NTP";
}

swarm_clock::duration clock_watch::median() const {
  std::vector<swarm_clock::duration> all;
  for (const auto& [id, of] : peers_)
    all.push_back(of.offset);
  return all.empty() ? swarm_clock::duration{} : upper_median(std::move(all));
}

/// The sentence about our own clock, if it is off from those of more than half of the peers. With a
/// single peer nobody can tell which of the two clocks is wrong.
std::optional<std::string> clock_watch::own_clock() const {
  auto limit = std::chrono::duration_cast<swarm_clock::duration>(options_.limits.noticeable);
  std::size_t ahead = 0; // peers
  std::size_t behind = 0;
  for (const auto& [id, of] : peers_) {
    ahead += of.offset > limit ? 1U : 0U;
    behind += of.offset < -limit ? 1U : 0U;
  }
  auto off = std::max(ahead, behind);
  if (peers_.size() < 2 || 2 * off <= peers_.size())
    return std::nullopt;
  // The median is one of those that are off, because they are more than half.
  return "this machine's clock is " + how_far(-median()) + " that of " + std::to_string(off)
         + " of " + std::to_string(peers_.size()) + " peers: set it, e.g. with NTP";
}

void clock_watch::make_room() {
  if (peers_.size() < options_.peers_max)
    return;
  peers_.erase(std::min_element(peers_.begin(), peers_.end(), [](const auto& a, const auto& b) {
    return a.second.seen < b.second.seen;
  }));
}

} // namespace waggle::net
