#include "runtime/averaging/fault_memory.hpp"

namespace waggle {

fault_kind kind_of(ec reason) {
  // Every other code: a lost link, a member that left the round, or a cause that is not certain.
  if (reason == ec::stalled || reason == ec::timeout)
    return fault_kind::silent;
  if (reason == ec::unequal_results || reason == ec::protocol_violation
      || reason == ec::bad_signature || reason == ec::non_finite || reason == ec::wrong_shape
      || reason == ec::implausible_norm || reason == ec::wrong_sum)
    return fault_kind::wrong;
  return fault_kind::none;
}

fault_memory::entry& fault_memory::entry_of(const peer_id& peer) {
  auto found = entries_.find(peer);
  if (found != entries_.end())
    return found->second;
  if (entries_.size() >= limits_.peers_max)
    entries_.erase(std::ranges::min_element(
      entries_, {}, [](const auto& each) { return each.second.touched(); }));
  return entries_.emplace(peer, entry{}).first->second;
}

std::optional<fault_memory::exclusion> fault_memory::add(const peer_id& peer, fault_kind kind,
                                                         steady_time now) {
  if (kind == fault_kind::none)
    return std::nullopt;
  auto& known = entry_of(peer);
  bool lasting = kind == fault_kind::wrong || kind == fault_kind::slow;
  auto& fault = known.of(kind);
  if (kind == fault_kind::silent)
    known.silent_before = fault;
  const auto& range = kind == fault_kind::wrong  ? limits_.wrong
                      : kind == fault_kind::slow ? limits_.slow
                                                 : limits_.silent;
  auto forgotten_after = lasting ? range.longest : limits_.silence_forgotten_after;
  if (fault.steps > 0 && now - std::max(fault.last, fault.until) >= forgotten_after)
    fault.steps = 0;
  fault.last = fault.reduced = now;
  std::uint32_t tolerated = lasting ? 0 : 1;
  if (fault.steps < tolerated) {
    ++fault.steps;
    return std::nullopt;
  }
  auto lasts = range.first;
  for (auto step = tolerated; step < fault.steps && lasts < range.longest; ++step)
    lasts *= 2;
  if (lasts < range.longest) // otherwise further steps change nothing, and would have to be undone
    ++fault.steps;
  lasts = std::min(lasts, range.longest);
  fault.until = now + lasts;
  return exclusion{kind, lasts};
}

void fault_memory::completed_with(const peer_id& peer, steady_time now) {
  auto found = entries_.find(peer);
  if (found == entries_.end())
    return;
  auto& fault = found->second.of(fault_kind::silent);
  if (fault.steps <= 1 || now - std::max(fault.reduced, fault.until) < limits_.step_forgotten_after)
    return;
  --fault.steps;
  fault.reduced = now;
}

void fault_memory::retract_silence(const peer_id& peer, steady_time now) {
  auto found = entries_.find(peer);
  if (found == entries_.end())
    return;
  auto& silent = found->second.of(fault_kind::silent);
  if (silent.steps > 0 && now - silent.last <= limits_.retracted_within)
    silent = found->second.silent_before;
}

bool fault_memory::most_excluded(std::size_t group_size, steady_time now) const {
  auto count =
    std::ranges::count_if(entries_, [now](const auto& item) { return now < item.second.until(); });
  return static_cast<std::size_t>(count) >= group_size;
}

fault_kind fault_memory::holds(const entry& known, bool most, steady_time now) const {
  for (std::size_t kind = 0; kind < known.faults.size(); ++kind) {
    const auto& fault = known.faults[kind];
    if (now < (most ? std::min(fault.until, fault.last + limits_.longest_if_most) : fault.until))
      return static_cast<fault_kind>(kind);
  }
  return fault_kind::none;
}

fault_kind fault_memory::excluded_for(const peer_id& peer, std::size_t group_size,
                                      steady_time now) const {
  auto found = entries_.find(peer);
  if (found == entries_.end() || now >= found->second.until())
    return fault_kind::none;
  return holds(found->second, most_excluded(group_size, now), now);
}

std::vector<peer_id> fault_memory::excluded(std::size_t group_size, steady_time now) const {
  std::vector<peer_id> out;
  bool most = most_excluded(group_size, now);
  for (const auto& [peer, known] : entries_)
    if (holds(known, most, now) != fault_kind::none)
      out.push_back(peer);
  return out;
}

} // namespace waggle
