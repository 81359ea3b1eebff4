#include "runtime/progress/history_choice.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace waggle {

namespace {

/// Where a history was forked from.
struct origin {
  digest parent;
  epoch_id at;

  friend auto operator<=>(const origin&, const origin&) = default;
};

struct support {
  std::size_t supporters = 0;
  std::size_t known = 0;       // of them: those with which we completed rounds, and ourselves
  std::size_t provisional = 0; // of them: those that claim to go on without most of their group
  std::size_t known_provisional = 0;              // of them: those that we know
  std::size_t former = 0;                         // of them: members of our group that fell apart
  std::size_t first_former = ~std::size_t{0};     // their first position in it
  std::map<origin, std::size_t> origins;          // that supporters claim
  std::map<origin, std::size_t> origins_by_known; // that known supporters claim
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

/// Counts a supporter of `group`: was it in our group that fell apart?
void count_former(support& group, const history_view& own, const peer_id& peer) {
  if (own.former == nullptr)
    return;
  const auto& in = own.former->members;
  auto found = std::ranges::find(in, peer);
  if (found == in.end())
    return;
  ++group.former;
  group.first_former = std::min(group.first_former, static_cast<std::size_t>(found - in.begin()));
}

/// What most of the supporters that we know claim; of all, if we know none. Ours is known for sure,
/// except while we download the state of a history that we have just entered.
origin origin_of(const digest& branch, const support& group, const history_view& own) {
  if (branch == own.past.branch && !own.past.parent.is_zero())
    return {own.past.parent, own.past.forked_at};
  const auto& claimed = group.origins_by_known.empty() ? group.origins : group.origins_by_known;
  auto most = std::ranges::max_element(claimed, {}, [](const auto& each) { return each.second; });
  return most == claimed.end() ? origin{} : most->first;
}

/// The smallest id among the supporters that we do not know.
peer_id unknown_among(const support& group, const history_view& own) {
  for (const auto* peer : group.members) // in ascending order
    if (!own.known->covers(peer->who.id))
      return peer->who.id;
  return {};
}

bool is_provisional(const digest& branch, const support& group, const history_view& own) {
  return branch == own.past.branch ? own.provisional : 2 * group.known_provisional > group.known;
}

/// Leaves out provisional histories where the one that they were forked from goes on.
void drop_abandoned_forks(groups_by_branch& groups, const history_view& own) {
  std::erase_if(groups, [&](const auto& group) {
    const auto& [branch, fork] = group;
    auto parent = groups.find(origin_of(branch, fork, own).parent);
    return is_provisional(branch, fork, own) && parent != groups.end() && parent->first != branch
           && parent->second.held && parent->second.supporters > 1 && parent->second.known > 0;
  });
}

/// Of the provisional histories that our former group fell apart into, leaves the one that most of
/// its members train. Some may have ended one more epoch together than the others.
void drop_smaller_pieces(groups_by_branch& groups, const history_view& own) {
  if (!own.provisional || own.former == nullptr)
    return;
  auto is_piece = [&](const groups_by_branch::value_type& group) {
    const auto& [branch, fork] = group;
    auto from = origin_of(branch, fork, own);
    auto apart =
      std::max(from.at, own.former->epoch).value() - std::min(from.at, own.former->epoch).value();
    return from.parent == own.former->branch && apart <= 1 && fork.held
           && is_provisional(branch, fork, own);
  };
  const groups_by_branch::value_type* largest = nullptr;
  bool ours = false;
  for (const auto& group : groups) {
    if (!is_piece(group))
      continue;
    ours = ours || group.first == own.past.branch;
    const auto& fork = group.second;
    if (largest == nullptr || fork.former > largest->second.former
        || (fork.former == largest->second.former
            && fork.first_former < largest->second.first_former))
      largest = &group;
  }
  if (!ours || largest->second.former == 0)
    return;
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
    origin from{peer.claim.past.parent, peer.claim.past.forked_at};
    if (own.known != nullptr && own.known->covers(peer.who.id)) {
      ++group.known;
      evident = true;
      group.known_provisional += peer.claim.provisional ? 1 : 0;
      group.origins_by_known[from] += from.parent.is_zero() ? 0 : 1;
    }
    group.origins[from] += from.parent.is_zero() ? 0 : 1; // it may be downloading the state
    count_former(group, own, peer.who.id);
    group.provisional += peer.claim.provisional ? 1 : 0;
    group.work = std::max(group.work, peer.claim.past.work);
    group.held = group.held || peer.claim.ready;
    group.members.push_back(&peer);
  }
  // We support our own history, even outside of a group if it contains work.
  bool counts = own.in_group || own.past.work > 0;
  bool helped_elsewhere = std::ranges::any_of(others, [&](const swarm_progress::peer& peer) {
    return peer.claim.auxiliary && peer.claim.group_size > 0
           && peer.claim.past.branch != own.past.branch;
  });
  bool lonely = !own.may_lead && (own.alone || !own.in_group);
  if (counts) {
    auto& ours = groups[own.past.branch];
    std::size_t counted = lonely && helped_elsewhere ? 0 : 1;
    ours.supporters += counted;
    ours.known += counted;
    if (counted > 0)
      count_former(ours, own, own.self);
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
    auto from = origin_of(branch, group, own);
    choice.parent = from.parent;
    choice.forked_at = from.at;
    auto members = group.members;
    auto knows = [&](const auto* peer) {
      return own.known != nullptr && own.known->covers(peer->who.id);
    };
    std::ranges::stable_sort(members, [&](const auto* a, const auto* b) {
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
