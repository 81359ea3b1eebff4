#include "runtime/progress/help_choice.hpp"

#include <algorithm>

namespace waggle {

namespace {

/// Larger than the target of any run; the sum over 64 members does not overflow.
constexpr std::uint64_t target_max = std::uint64_t{1} << 56U;

} // namespace

help_choice choose_help(const helper_state& own,
                        const std::vector<swarm_progress::peer>& connected) {
  bool in_group = !own.members.empty();
  history_view as_trainer{own.self, in_group ? own.past : history{}, in_group, true, false};
  // A member that has not reported yet that our group forked is no reason to leave the group.
  auto present = connected;
  for (auto& peer : present)
    if (in_group && own.members.contains(peer.who.id) && !own.past.parent.is_zero()
        && peer.claim.past.branch == own.past.parent && peer.epoch <= own.past.forked_at)
      peer.claim.past = own.past;
  auto preferred = choose_history(as_trainer, present);
  help_choice choice;
  if (preferred.what == course::stay) {
    choice.what = clients_among(own, connected) > 0 ? help::stay : help::none;
    return choice;
  }
  if (preferred.what != course::enter)
    return choice;
  for (const auto& peer : connected)
    if (peer.claim.group_size > 0 && peer.claim.past.branch == preferred.branch
        && peer.who.id != own.self && !peer.who.client_mode)
      return choice; // it has a member that can be reached
  choice.what = help::enter;
  choice.past.branch = preferred.branch;
  choice.past.work = preferred.work;
  choice.through = std::move(preferred.through);
  return choice;
}

std::uint32_t clients_among(const helper_state& own,
                            const std::vector<swarm_progress::peer>& connected) {
  std::uint32_t clients = 0;
  for (const auto& member : own.members) {
    auto known = std::find_if(connected.begin(), connected.end(),
                              [&](const auto& peer) { return peer.who.id == member; });
    bool client = known != connected.end() ? known->who.client_mode : own.links.contains(member);
    clients += member != own.self && client ? 1 : 0;
  }
  return clients;
}

group_samples samples_toward(const helper_state& own,
                             const std::vector<swarm_progress::peer>& connected) {
  group_samples sum;
  for (const auto& peer : connected) {
    if (!own.members.contains(peer.who.id) || peer.who.id == own.self || peer.claim.auxiliary
        || peer.claim.past.branch != own.past.branch)
      continue;
    // The smallest target: a peer with a smaller one than the others can call a round itself.
    auto target = peer.claim.target_batch_size;
    if (target > 0 && target <= target_max)
      sum.target = sum.target == 0 ? target : std::min(sum.target, target);
  }
  for (const auto& peer : connected)
    if (own.members.contains(peer.who.id) && peer.who.id != own.self && peer.epoch == own.epoch
        && peer.claim.past.branch == own.past.branch && peer.claim.group_size > 0)
      sum.samples += std::min(peer.samples, sum.target);
  return sum;
}

std::vector<peer_record> holders_of(const helper_state& own,
                                    const std::vector<swarm_progress::peer>& connected) {
  std::vector<peer_record> holders;
  for (const auto& peer : connected)
    if (peer.claim.ready && !peer.claim.auxiliary && peer.claim.group_size > 0
        && peer.who.id != own.self && peer.claim.past.branch == own.past.branch)
      holders.push_back(peer.who);
  return holders;
}

} // namespace waggle
