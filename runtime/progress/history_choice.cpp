#include "runtime/progress/history_choice.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace waggle {

namespace {

struct support {
  std::size_t supporters = 0;
  std::size_t known = 0;       // of them: those with which we completed rounds, and we ourselves
  std::size_t provisional = 0; // of them: those that claim to go on without most of their group
  std::size_t former = 0;      // of them: members of our group that fell apart
  digest parent;               // the history that it was forked from, as a known supporter claims
  epoch_id forked_at;          // likewise
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
  if (of_a.known != of_b.known)
    return of_a.known > of_b.known;
  if (of_a.supporters != of_b.supporters)
    return of_a.supporters > of_b.supporters;
  if (step_of(of_a.work) != step_of(of_b.work))
    return step_of(of_a.work) > step_of(of_b.work);
  return a < b;
}

using groups_by_branch = std::map<digest, support>;

const groups_by_branch::value_type* heaviest(const groups_by_branch& groups) {
  const groups_by_branch::value_type* best = nullptr;
  for (const auto& group : groups)
    if (group.second.held
        && (best == nullptr || outweighs(group.first, group.second, best->first, best->second)))
      best = &group;
  return best;
}

bool was_in_group(const history_view& own, const peer_id& peer) {
  if (own.former == nullptr)
    return false;
  const auto& in = own.former->members;
  return std::find(in.begin(), in.end(), peer) != in.end();
}

/// The smallest id among the supporters that we do not know.
peer_id unknown_among(const support& group, const history_view& own) {
  for (const auto* peer : group.members) // in ascending order
    if (!own.known->covers(peer->who.id))
      return peer->who.id;
  return {};
}

/// Leaves out provisional histories where the one that they were forked from goes on.
void drop_abandoned_forks(groups_by_branch& groups, const history_view& own) {
  std::erase_if(groups, [&](const auto& group) {
    const auto& [branch, fork] = group;
    bool ours = branch == own.past.branch;
    bool provisional = ours ? own.provisional : 2 * fork.provisional > fork.supporters;
    auto parent = groups.find(ours ? own.past.parent : fork.parent);
    return provisional && parent != groups.end() && parent->first != branch && parent->second.held
           && parent->second.supporters > 1 && parent->second.known > 0;
  });
}

/// Of the provisional histories that our former group fell apart into, leaves the one that most of
/// its members train. A history that newcomers have made their own by now is not given up for a
/// few former members.
void drop_smaller_pieces(groups_by_branch& groups, const history_view& own) {
  if (!own.provisional || own.former == nullptr || own.past.parent != own.former->branch)
    return;
  auto ours = groups.find(own.past.branch);
  if (ours == groups.end() || 2 * ours->second.former < ours->second.supporters)
    return;
  auto is_piece = [&](const groups_by_branch::value_type& group) {
    const auto& [branch, fork] = group;
    return branch == own.past.branch
           || (fork.held && fork.known > 0 && 2 * fork.provisional > fork.supporters
               && fork.parent == own.former->branch && fork.forked_at == own.former->epoch);
  };
  const groups_by_branch::value_type* largest = &*ours;
  for (const auto& group : groups) {
    auto of_group = group.second;
    auto of_largest = largest->second;
    of_group.known = of_group.former;
    of_largest.known = of_largest.former;
    if (is_piece(group) && outweighs(group.first, of_group, largest->first, of_largest))
      largest = &group;
  }
  auto goes_on = largest->first;
  std::erase_if(groups,
                [&](const auto& group) { return group.first != goes_on && is_piece(group); });
}

} // namespace

history_choice choose_history(const history_view& own,
                              const std::vector<swarm_progress::peer>& others) {
  groups_by_branch groups;
  bool evident = false; // we know a peer that is in a group
  for (const auto& peer : others) {
    if (peer.who.id == own.self || peer.claim.group_size == 0 || peer.claim.past.branch.is_zero())
      continue;
    auto& group = groups[peer.claim.past.branch];
    ++group.supporters;
    if (own.known != nullptr && own.known->covers(peer.who.id)) {
      ++group.known;
      evident = true;
      if (!peer.claim.past.parent.is_zero()) {
        group.parent = peer.claim.past.parent;
        group.forked_at = peer.claim.past.forked_at;
      }
    }
    group.former += was_in_group(own, peer.who.id) ? 1 : 0;
    group.provisional += peer.claim.provisional ? 1 : 0;
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
    std::size_t counted = lonely && helped_elsewhere ? 0 : 1;
    ours.supporters += counted;
    ours.known += counted;
    ours.former += was_in_group(own, own.self) ? counted : 0;
    ours.held = true;
    ours.work = std::max(ours.work, own.past.work);
  }
  if (!evident)
    for (auto& [branch, group] : groups)
      group.known = 0;

  history_choice choice;
  choice.without_evidence = !evident;
  choice.histories = groups.size();
  if (evident) {
    drop_abandoned_forks(groups, own);
    drop_smaller_pieces(groups, own);
    auto alike = groups;
    for (auto& [branch, group] : alike)
      group.known = 0;
    const auto* claimed = heaviest(alike);
    const auto* believed = heaviest(groups);
    if (claimed != nullptr && claimed->first != believed->first)
      choice.doubted = {claimed->first, claimed->second.supporters, groups.at(claimed->first).known,
                        unknown_among(claimed->second, own)};
  }
  const auto* best = heaviest(groups);
  auto enter = [&](const digest& branch, const support& group) {
    choice.what = course::enter;
    choice.branch = branch;
    choice.work = group.work;
    choice.supporters = group.supporters;
    choice.provisional = 2 * group.provisional > group.supporters;
    auto members = group.members;
    auto knows = [&](const auto* peer) {
      return own.known != nullptr && own.known->covers(peer->who.id);
    };
    std::stable_sort(members.begin(), members.end(), [&](const auto* a, const auto* b) {
      if (knows(a) != knows(b))
        return knows(a);
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
