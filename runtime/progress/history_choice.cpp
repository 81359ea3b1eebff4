#include "runtime/progress/history_choice.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace waggle {

namespace {

struct support {
  std::size_t supporters = 0;
  std::uint64_t work = 0;
  bool held = false; // a peer has its state: without it the history cannot continue
  std::vector<const swarm_progress::peer*> members;
};

/// Quantizes work into steps of about 3 %. The work that others report is older than what we know
/// of our own: without steps, each of two histories that grow side by side would always see itself
/// ahead.
std::uint32_t step_of(std::uint64_t work) {
  constexpr std::uint32_t steps_an_octave = 32;
  if (work < steps_an_octave)
    return static_cast<std::uint32_t>(work);
  auto octave = static_cast<std::uint32_t>(std::bit_width(work)) - 1;
  auto within = (work >> (octave - 5)) - steps_an_octave; // the five bits after the first
  return octave * steps_an_octave + static_cast<std::uint32_t>(within);
}

/// Whether history a is preferred to history b.
bool outweighs(const digest& a, const support& of_a, const digest& b, const support& of_b) {
  if (of_a.supporters != of_b.supporters)
    return of_a.supporters > of_b.supporters;
  if (step_of(of_a.work) != step_of(of_b.work))
    return step_of(of_a.work) > step_of(of_b.work);
  return a < b;
}

} // namespace

history_choice choose_history(const history_view& own,
                              const std::vector<swarm_progress::peer>& others) {
  std::map<digest, support> groups;
  for (const auto& peer : others) {
    if (peer.who.id == own.self || peer.claim.group_size == 0 || peer.claim.past.branch.is_zero())
      continue;
    auto& group = groups[peer.claim.past.branch];
    ++group.supporters;
    group.work = std::max(group.work, peer.claim.past.work);
    group.held = group.held || peer.claim.ready;
    group.members.push_back(&peer);
  }
  // We support our own history, even outside of a group if it contains work.
  bool counts = own.in_group || own.past.work > 0;
  bool helped_elsewhere =
    std::any_of(others.begin(), others.end(), [&](const swarm_progress::peer& peer) {
      return peer.claim.auxiliary && peer.claim.group_size > 0
             && peer.claim.past.branch != own.past.branch;
    });
  bool lonely = !own.may_lead && (own.alone || !own.in_group);
  if (counts) {
    auto& ours = groups[own.past.branch];
    ours.supporters += lonely && helped_elsewhere ? 0 : 1;
    ours.held = true;
    ours.work = std::max(ours.work, own.past.work);
  }
  const std::pair<const digest, support>* best = nullptr;
  for (const auto& group : groups)
    if (group.second.held
        && (best == nullptr || outweighs(group.first, group.second, best->first, best->second)))
      best = &group;

  history_choice choice;
  auto enter = [&](const digest& branch, const support& group) {
    choice.what = course::enter;
    choice.branch = branch;
    choice.work = group.work;
    choice.supporters = group.supporters;
    auto members = group.members;
    std::stable_sort(members.begin(), members.end(), [](const auto* a, const auto* b) {
      if (a->claim.ready != b->claim.ready)
        return a->claim.ready;
      return !a->who.client_mode && b->who.client_mode;
    });
    for (const auto* m : members)
      choice.through.push_back(m->who);
    return choice;
  };
  bool ours = best != nullptr && counts && best->first == own.past.branch;
  if (own.in_group)
    return ours ? choice : enter(best->first, best->second);
  if (best != nullptr && !best->second.members.empty())
    return enter(best->first, best->second);

  // No supporter is in a group. Find the peer whose state is worth most.
  using rank = std::pair<std::uint64_t, peer_id>;
  auto before = [](const rank& a, const rank& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  rank first{own.past.work, own.self};
  choice.what = course::found;
  choice.awaited = own.self;
  bool undecided = !own.may_lead;
  for (const auto& peer : others) {
    if (peer.who.id == own.self || peer.who.client_mode || peer.claim.auxiliary
        || peer.claim.group_size != 0)
      continue; // cannot be joined, or has no state to begin with
    rank theirs{peer.claim.past.work, peer.who.id};
    if (!undecided && !before(theirs, first))
      continue;
    undecided = false;
    first = theirs;
    choice.what = course::wait;
    choice.awaited = peer.who.id;
  }
  return choice;
}

} // namespace waggle
