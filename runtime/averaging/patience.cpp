#include "runtime/averaging/patience.hpp"

#include <algorithm>

namespace waggle {

void patience::add(const std::vector<member_wait>& members, double period) {
  std::erase_if(seen_, [&](const auto& item) {
    return std::none_of(members.begin(), members.end(),
                        [&](const member_wait& m) { return m.peer == item.first; });
  });
  double weights = 0;
  for (const auto& m : members)
    weights += m.weight;
  for (const auto& m : members) {
    auto& last = seen_[m.peer];
    auto of_others = weights - m.weight;
    auto worth = std::max(0.0, period - m.seconds);
    bool late = m.seconds >= seconds_of(patience_with_slow) && m.seconds >= several * m.others;
    // If the others bring nothing, nothing is lost by waiting for the only one that does.
    last.push_back({m.seconds, of_others > 0 ? worth * m.weight / of_others : m.seconds, late});
    if (last.size() > rounds_max)
      last.pop_front();
  }
}

std::vector<peer_id> patience::slow() const {
  std::vector<peer_id> out;
  for (const auto& [peer, rounds] : seen_) {
    std::size_t late = 0;
    double waited = 0;
    double saved = 0;
    for (const auto& each : rounds) {
      late += each.late ? 1 : 0;
      waited += each.waited;
      saved += each.saved;
    }
    if (late >= late_rounds_min && waited > saved)
      out.push_back(peer);
  }
  if (seen_.size() < 3 || 2 * out.size() >= seen_.size())
    out.clear();
  return out;
}

} // namespace waggle
