#include "runtime/progress/help_choice.hpp"

#include <algorithm>
#include <map>

namespace waggle {

namespace {

using peer_report = swarm_progress::peer;

bool knows(const helper_state& own, const peer_id& peer) {
  return own.known != nullptr && own.known->covers(peer);
}

bool trains(const peer_report& peer, const digest& branch) {
  return peer.claim.group_size > 0 && peer.claim.past.branch == branch;
}

/// Whether the group that trains `branch` has a member that others can reach.
bool can_be_reached(const digest& branch, const helper_state& own,
                    const std::vector<peer_report>& connected) {
  std::size_t clients = 0;
  std::size_t known = 0;
  bool claimed = false;
  for (const auto& peer : connected) {
    if (!trains(peer, branch) || peer.who.id == own.self)
      continue;
    clients += peer.who.client_mode ? 1 : 0;
    known += knows(own, peer.who.id) ? 1 : 0;
    if (!peer.who.client_mode && knows(own, peer.who.id))
      return true;
    claimed = claimed || !peer.who.client_mode;
  }
  if (!claimed || known == 0)
    return claimed;
  auto confirm = std::count_if(connected.begin(), connected.end(), [&](const auto& peer) {
    return trains(peer, branch) && knows(own, peer.who.id) && peer.claim.group_size > clients;
  });
  return 2 * static_cast<std::size_t>(confirm) > known;
}

/// Whether what it reports about samples is about our group's epochs.
bool is_heeded(const peer_report& peer, const helper_state& own) {
  return own.members.contains(peer.who.id) && peer.who.id != own.self && !peer.claim.auxiliary
         && peer.claim.past.branch == own.past.branch;
}

bool counts_here(const peer_report& peer, const helper_state& own) {
  return is_heeded(peer, own) && peer.epoch == own.epoch && peer.claim.group_size > 0;
}

/// The target that most members report; of two that equally many report the smaller one, because a
/// peer with a smaller one than the others can call a round itself.
std::uint64_t target_of(const helper_state& own, const std::vector<peer_report>& connected) {
  std::map<std::uint64_t, std::size_t> of_known;
  std::map<std::uint64_t, std::size_t> of_all;
  for (const auto& peer : connected) {
    auto target = peer.claim.target_batch_size;
    if (!is_heeded(peer, own) || target == 0 || target > helper_target_max)
      continue;
    ++of_all[target];
    if (knows(own, peer.who.id))
      ++of_known[target];
  }
  const auto& votes = of_known.empty() ? of_all : of_known;
  auto most = std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) {
    return a.second < b.second; // the first one of those that are equal
  });
  return most == votes.end() ? 0 : most->first;
}

} // namespace

help_choice choose_help(const helper_state& own, const std::vector<peer_report>& connected) {
  bool in_group = !own.members.empty();
  history_view as_trainer{own.self, in_group ? own.past : history{}, in_group, true, false};
  as_trainer.known = own.known;
  // A member that has not reported yet that our group forked is no reason to leave the group.
  auto present = connected;
  for (auto& peer : present)
    if (in_group && own.members.contains(peer.who.id) && !own.past.parent.is_zero()
        && peer.claim.past.branch == own.past.parent && peer.epoch <= own.past.forked_at)
      peer.claim.past = own.past;
  auto preferred = choose_history(as_trainer, present);
  help_choice choice;
  choice.doubted = preferred.doubted;
  if (preferred.what == course::stay) {
    choice.what = clients_among(own, connected) > 0 ? help::stay : help::none;
    return choice;
  }
  if (preferred.what != course::enter || can_be_reached(preferred.branch, own, connected))
    return choice;
  choice.what = help::enter;
  choice.past.branch = preferred.branch;
  choice.past.work = preferred.work;
  choice.through = std::move(preferred.through);
  return choice;
}

std::uint32_t clients_among(const helper_state& own, const std::vector<peer_report>& connected) {
  std::uint32_t clients = 0;
  for (const auto& member : own.members) {
    auto known = std::find_if(connected.begin(), connected.end(),
                              [&](const auto& peer) { return peer.who.id == member; });
    bool client = known != connected.end() ? known->who.client_mode : own.links.contains(member);
    clients += member != own.self && client ? 1 : 0;
  }
  return clients;
}

group_samples samples_toward(const helper_state& own, const std::vector<peer_report>& connected,
                             const sample_claims& claims, steady_time now) {
  group_samples sum;
  sum.target = target_of(own, connected);
  for (const auto& peer : connected)
    if (counts_here(peer, own))
      sum.samples += claims.counted(peer.who.id, std::min(peer.samples, sum.target), now);
  return sum;
}

void observe_samples(const helper_state& own, const std::vector<peer_report>& connected,
                     sample_claims& claims) {
  auto target = target_of(own, connected);
  for (const auto& peer : connected)
    if (counts_here(peer, own))
      claims.observe(peer.who.id, std::min(peer.samples, target));
}

bool weighs_samples(double weight_sum, std::size_t contributors) {
  return weight_sum > static_cast<double>(contributors);
}

std::vector<peer_record> holders_of(const helper_state& own,
                                    const std::vector<peer_report>& connected) {
  std::vector<const peer_report*> holders;
  for (const auto& peer : connected)
    if (peer.claim.ready && !peer.claim.auxiliary && trains(peer, own.past.branch)
        && peer.who.id != own.self
        && (own.members.contains(peer.who.id) || knows(own, peer.who.id)))
      holders.push_back(&peer);
  auto keep_if_any = [&](auto preferred) {
    if (std::any_of(holders.begin(), holders.end(), preferred))
      std::erase_if(holders, [&](const auto* peer) { return !preferred(peer); });
  };
  keep_if_any([&](const auto* peer) { return own.members.contains(peer->who.id); });
  keep_if_any([&](const auto* peer) { return knows(own, peer->who.id); });
  std::vector<peer_record> out;
  for (const auto* peer : holders)
    out.push_back(peer->who);
  return out;
}

} // namespace waggle
