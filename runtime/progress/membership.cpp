#include "runtime/progress/membership.hpp"

#include <algorithm>

#include "runtime/core/check.hpp"
#include "runtime/core/epoch_limit.hpp"

namespace waggle {

namespace {

using peer_report = swarm_progress::peer;

constexpr milliseconds entry_pause{200};
/// An exclusion lasts 5 s at least (fault_memory).
constexpr milliseconds pause_if_excluded{1'000};
constexpr milliseconds patience_with_founder{3'000};
constexpr milliseconds patience_behind{2'000};
constexpr milliseconds patience_without_leader{3'000};
/// How long the record of a peer counts that is neither in a group nor connected: it may be gone.
constexpr milliseconds patience_with_records{2'000};
constexpr std::size_t avoided_max = 1'000; // an attacker can make up any number of ids
/// A report of a member may be so many epochs newer than what we know of the others.
constexpr std::uint64_t epochs_of_news = 3;

} // namespace

bool membership::has(const peer_id& peer) const {
  return std::ranges::find(members_, peer) != members_.end();
}

// -- decisions ------------------------------------------------------------------------------------

membership::action membership::decide(const membership_facts& facts) {
  if (paused_)
    return is_member() && !facts.round_runs ? action{action::kind::leave, {}, "it is paused"}
                                            : action{};
  if (place_ == place::outside)
    return look(facts);
  return is_member() ? review(facts) : action{};
}

membership::action membership::look(const membership_facts& facts) {
  auto since = connected_since_.value_or(facts.now);
  connected_since_ = seen_.connected.empty() ? std::nullopt : std::optional{since};
  if (pauses(facts.now))
    return {};
  action next{action::kind::none, choose(facts)};
  switch (next.choice->what) {
    case course::enter:
      next.what = action::kind::enter;
      break;
    case course::wait:
      next.what = action::kind::wait;
      if (awaited_ != next.choice->awaited) {
        awaited_ = next.choice->awaited;
        awaited_since_ = facts.now;
      } else if (facts.now - awaited_since_ >= patience_with_founder) {
        passed_over_.insert(awaited_);
      }
      next.why =
        "peer " + short_name(next.choice->awaited) + ", which holds the run's state, to begin";
      break;
    case course::found: {
      auto decided = may_found(facts);
      next.what = decided.now ? action::kind::found : action::kind::wait;
      next.why = std::move(decided.why);
      break;
    }
    case course::stay:
      break;
  }
  return next;
}

membership::action membership::review(const membership_facts& facts) {
  action next{action::kind::none, choose(facts)};
  const auto& choice = *next.choice;
  if (choice.what == course::enter) {
    next.what = action::kind::enter;
    next.why = "history " + short_name(choice.branch) + " is held by "
               + std::to_string(choice.supporters) + (choice.supporters == 1 ? " peer" : " peers")
               + " and has more work";
  } else if (left_behind(facts)) {
    next.what = action::kind::leave;
    next.why = "the other members have gone on without us";
  } else if (lost_leader(facts)) {
    next.what = action::kind::leave;
    next.why = "its leader is gone, and no round is due";
  } else if (has_other_mode(facts)) {
    next.what = action::kind::change_mode;
  }
  return next;
}

/// Only the leader admits newcomers. A round without it would choose another one.
bool membership::lost_leader(const membership_facts& facts) {
  const auto& leader = members_.front();
  bool lost = leader != seen_.self && !seen_.is_connected(leader);
  return unled_.lasts(lost && facts.idle && !how_.many_groups, facts.now, patience_without_leader);
}

history_choice membership::choose(const membership_facts& facts) const {
  history_view own{
    seen_.self,   facts.past,  is_member(), !facts.client, is_member() && members_.size() == 1,
    provisional_, &seen_.known};
  // In many groups, no round decides for the run.
  if (!how_.many_groups && !former_.members.empty()
      && facts.now - former_since_ < former_group::lasts)
    own.former = &former_;
  std::vector<peer_report> others;
  const auto& peers = seen_.progress.peers;
  bool reached = std::ranges::any_of(peers, [this](const auto& peer) {
    return peer.claim.group_size > 0 && seen_.is_connected(peer.who.id);
  });
  for (const auto& peer : peers) {
    bool in_group = peer.claim.group_size > 0;
    // Records can be made up, and outlive their peers, so connected peers take precedence.
    bool connected = seen_.is_connected(peer.who.id);
    bool counts = in_group ? connected || !reached
                           : connected || facts.now - outside_since_ < patience_with_records;
    if (!counts || !is_live(peer.who.id) || (!in_group && passed_over_.contains(peer.who.id)))
      continue;
    if (!is_member()
        && (disbelieved_.holds(peer.who.id, facts.now)
            || misleading_.holds(peer.who.id, facts.now)))
      continue;
    others.push_back(peer);
    // Members that have not reported our group's fork yet are no reason to leave it.
    const auto& ours = facts.past;
    auto& branch = others.back().claim.past.branch;
    if (is_member() && !ours.parent.is_zero() && branch == ours.parent
        && peer.epoch <= ours.forked_at && has(peer.who.id))
      branch = ours.branch;
  }
  auto choice = choose_history(own, others);
  std::stable_partition(choice.through.begin(), choice.through.end(),
                        [this](const auto& peer) { return !avoided_.contains(peer.id); });
  return choice;
}

/// Whether a peer's report can be taken as current. For a member only connected peers count;
/// outside of a group, peers that may be reachable count too.
bool membership::is_live(const peer_id& peer) const {
  if (peer == seen_.self)
    return false;
  return seen_.is_connected(peer) || (!is_member() && !avoided_.contains(peer));
}

/// Whether most of the group have ended epochs without us, so that waiting here is futile.
bool membership::left_behind(const membership_facts& facts) {
  if (how_.many_groups) // its epochs end without us, too
    return false;
  std::size_t ahead = 0;
  std::size_t far = 0;
  for (const auto& peer : seen_.progress.peers) {
    if (peer.who.id == seen_.self || peer.claim.past.branch != facts.past.branch
        || peer.epoch <= facts.epoch || !has(peer.who.id))
      continue;
    ++ahead;
    far += peer.epoch > facts.epoch.next() ? 1 : 0;
  }
  auto most = [this](std::size_t n) { return n > 0 && 2 * n > members_.size() - 1; };
  bool behind = !facts.round_runs && most(ahead); // a running round will report its outcome
  return behind_.lasts(behind, facts.now, patience_behind) || (behind && most(far));
}

bool membership::has_other_mode(const membership_facts& facts) const {
  bool other =
    !how_.many_groups && as_client_ != facts.client && !facts.round_runs && members_.size() > 1;
  return other && (facts.client || has_turn());
}

/// Whether it may leave the group for a reason that its other clients have at the same time. If
/// each goes in an epoch of its own, or a quarter of them, most of the group stays.
bool membership::has_turn() const {
  if (clients_ && 2 * *clients_ < members_.size()) // it does in any case
    return true;
  auto turns = std::min<std::size_t>(members_.size(), 4);
  auto place = std::ranges::find(members_, seen_.self) - members_.begin();
  return epoch_.value() % turns == static_cast<std::size_t>(place) % turns;
}

/// Whether most of the group that we lost can be reached again.
bool membership::most_are_back() const {
  std::size_t back = 1; // this peer
  for (const auto& peer : lost_members_)
    back += peer != seen_.self && seen_.is_connected(peer) ? 1 : 0;
  return 2 * back > lost_members_.size();
}

/// There is no group to enter. Whether it is time to found one.
founding membership::may_found(const membership_facts& facts) const {
  founding_situation now{how_};
  now.waited = std::chrono::duration_cast<milliseconds>(facts.now - outside_since_);
  if (connected_since_ > outside_since_)
    now.unheard = std::chrono::duration_cast<milliseconds>(*connected_since_ - outside_since_);
  now.client = facts.client;
  now.lost_group = lost_group_ && !most_are_back();
  now.addresses_known = seen_.addresses_known;
  now.connected = !seen_.connected.empty();
  now.has_work = facts.past.work > 0;
  for (const auto& peer : seen_.progress.peers) {
    now.trainers_seen |= !peer.claim.auxiliary && !peer.claim.reduces_only && is_live(peer.who.id);
    now.reducer_connected |= peer.claim.auxiliary && seen_.is_connected(peer.who.id);
  }
  return decide_founding(now);
}

bool membership::is_outdated(const membership_facts& facts) {
  if (!how_.many_groups || !facts.in_step || facts.round_runs)
    return false;
  merge_age::others others;
  for (const auto& peer : seen_.progress.peers) {
    const auto& who = peer.who.id;
    const auto& claim = peer.claim;
    if (who != seen_.self && seen_.is_connected(who) && claim.ready
        && peer.claim.trains(facts.past.branch) && !claim.auxiliary && !claim.reduces_only)
      others[who] = {claim.past.work, seen_.known.covers(who)};
  }
  return merges_.is_outdated(facts.epoch, others);
}

std::size_t membership::lacks(bool trains, const std::optional<digest>& branch, steady_time now) {
  auto holds = [&](const peer_report& peer) {
    return peer.who.id != seen_.self && has(peer.who.id) && peer.claim.ready
           && peer.claim.trains(*branch);
  };
  auto able = members_.size();
  if (branch)
    able = 1 + static_cast<std::size_t>(std::ranges::count_if(seen_.progress.peers, holds));
  complete_ =
    complete_ || trains || able >= how_.min_peers
    || (how_.wait_for_peers > milliseconds{0} && now - outside_since_ >= how_.wait_for_peers);
  return complete_ ? 0 : how_.min_peers - able;
}

// -- transitions ----------------------------------------------------------------------------------

void membership::asked(bool as_client) {
  WAGGLE_CHECK(place_ == place::outside, "in a group, or entering one");
  place_ = place::entering;
  as_client_ = as_client;
}

void membership::become_member(std::vector<peer_id> members, epoch_id epoch, steady_time now) {
  WAGGLE_CHECK(place_ == place::entering, "nobody was asked");
  place_ = place::member;
  take(std::move(members), epoch);
  lost_group_ = false;
  passed_over_.clear();
  avoided_.clear();
  outside_since_ = now;
}

void membership::entered(const history_choice& choice, std::vector<peer_id> members, epoch_id epoch,
                         steady_time now) {
  become_member(std::move(members), epoch, now);
  provisional_ = choice.provisional;
  if (choice.provisional && former_.branch != choice.parent)
    remember({choice.parent, choice.forked_at, members_}, now);
}

void membership::founded(std::vector<peer_id> members, epoch_id epoch, steady_time now) {
  provisional_ = lost_group_ && !most_are_back();
  become_member(std::move(members), epoch, now);
}

void membership::refused(ec why, bool excluded, const peer_id* by, steady_time now) {
  WAGGLE_CHECK(place_ == place::entering, "nobody was asked");
  place_ = place::outside;
  enter_after_ = now + (excluded ? pause_if_excluded : entry_pause);
  if (by == nullptr)
    return;
  if (why == ec::unreachable || why == ec::timeout || why == ec::peer_lost) {
    if (avoided_.size() >= avoided_max)
      avoided_.clear();
    avoided_.insert(*by);
  }
  if (why == ec::not_ready)
    (void)disbelieved_.add(*by, now);
}

std::optional<std::string> membership::misled(const history_choice& choice,
                                              const std::vector<peer_id>& members,
                                              epoch_id epoch) const {
  if (how_.many_groups) // entering needs nobody's consent
    return std::nullopt;
  if (epoch.value() > epoch_max)
    return "its epoch is one that no run reaches";
  // Those that train the history are in its group, except for some that have just entered or left.
  const auto& peers = seen_.progress.peers;
  auto supports = [&](const peer_report& peer) {
    return seen_.is_connected(peer.who.id) && peer.claim.trains(choice.branch);
  };
  bool known = std::ranges::any_of(
    peers, [&](const auto& peer) { return supports(peer) && seen_.known.covers(peer.who.id); });
  std::size_t supporters = 0;
  std::size_t inside = 0;
  for (const auto& peer : peers) {
    const auto& who = peer.who.id;
    if (who == seen_.self || !supports(peer) || (known && !seen_.known.covers(who)))
      continue;
    ++supporters;
    inside += std::ranges::find(members, who) != members.end() ? 1 : 0;
  }
  if (2 * inside >= supporters)
    return std::nullopt;
  return std::to_string(inside) + " of the " + std::to_string(supporters)
         + " peers that train history " + short_name(choice.branch) + " are in it";
}

milliseconds membership::leave_misleading(const peer_id& leader, steady_time now) {
  WAGGLE_CHECK(place_ == place::entering, "nobody was asked");
  place_ = place::outside;
  return misleading_.add(leader, now);
}

void membership::left(steady_time now) {
  place_ = place::outside;
  take({}, {});
  behind_ = unled_ = {};
  outside_since_ = now;
  awaited_ = {};
}

void membership::remember(former_group group, steady_time now) {
  if (group.members.empty()) // the round never began
    return;
  former_ = std::move(group);
  former_since_ = now;
}

void membership::lost(bool excluded, const std::vector<peer_id>& tried,
                      const membership_facts& facts) {
  lost_group_ = !excluded; // a peer that was excluded knows that the others go on as a group
  lost_members_ = members_;
  if (!excluded)
    remember({facts.past.branch, facts.epoch, tried}, facts.now);
}

void membership::fell_apart(const std::vector<peer_id>& tried, const membership_facts& facts) {
  remember({facts.past.branch, facts.epoch, tried}, facts.now);
  provisional_ = true;
}

// -- what is believed -----------------------------------------------------------------------------

std::optional<std::string> membership::observe_epochs(const membership_facts& facts) {
  const auto& branch = facts.past.branch;
  epoch_of_run_ = facts.epoch;
  if (how_.many_groups && is_member()) // run_group has weighed the claims
    epoch_of_run_ = std::max(epoch_of_run_, epoch_);
  else
    for (const auto& peer : seen_.progress.peers)
      // Anybody can claim any epoch. A peer that is in no group has nobody else to go by.
      if (peer.claim.trains(branch)
          && (!is_member() || seen_.known.covers(peer.who.id) || has(peer.who.id)))
        epoch_of_run_ = std::max(epoch_of_run_, peer.epoch);
  auto before = std::exchange(far_claims_, 0);
  const peer_report* first = nullptr;
  for (const auto& peer : seen_.progress.peers)
    if (peer.who.id != seen_.self && peer.claim.trains(branch)
        && peer.epoch.value() > epoch_of_run_.value() + epochs_of_news) {
      ++far_claims_;
      first = first == nullptr ? &peer : first;
    }
  if (first == nullptr || before > 0)
    return std::nullopt;
  return "peer " + short_name(first->who.id) + " claims epoch "
         + std::to_string(first->epoch.value())
         + " of our history, of which no member of the group has reached more than "
         + std::to_string(epoch_of_run_.value()) + ": it is not believed";
}

bool membership::counts(const peer_report& peer, const digest& branch, epoch_id epoch) const {
  return peer.who.id != seen_.self && peer.epoch == epoch && peer.claim.trains(branch)
         && !peer.claim.reduces_only && has(peer.who.id);
}

std::vector<const peer_report*> membership::voters(const digest& branch) const {
  std::vector<const peer_report*> out;
  for (const auto& peer : seen_.progress.peers) {
    const auto& who = peer.who.id;
    if (seen_.is_connected(who) && peer.claim.trains(branch) && !peer.claim.auxiliary
        && (seen_.known.covers(who) || has(who)))
      out.push_back(&peer);
  }
  return out;
}

std::optional<std::vector<peer_id>> membership::without_pass(const digest& branch,
                                                             epoch_id epoch) const {
  std::vector<peer_id> without;
  bool alone = true;
  for (const auto& peer : seen_.progress.peers) {
    if (peer.who.id == seen_.self || peer.claim.auxiliary || peer.claim.reduces_only
        || !has(peer.who.id))
      continue;
    alone = false;
    if (!counts(peer, branch, epoch) || peer.samples == 0)
      without.push_back(peer.who.id);
  }
  if (alone)
    return std::nullopt;
  return without;
}

std::size_t membership::peers_that_step(const digest& branch) const {
  constexpr std::size_t unknown_min = 3; // when a run begins, nobody is known
  std::size_t known = 0;
  std::size_t unknown = 0;
  for (const auto& peer : seen_.progress.peers) {
    const auto& who = peer.who.id;
    if (who == seen_.self || !peer.claim.trains(branch) || !peer.claim.ready || peer.claim.auxiliary
        || peer.claim.reduces_only)
      continue;
    if (seen_.known.covers(who))
      ++known;
    else if (seen_.is_connected(who))
      ++unknown;
  }
  return known + std::min(unknown, known + unknown_min);
}

std::vector<peer_record> membership::donors(const digest& branch) const {
  std::vector<const peer_report*> holders;
  for (const auto& peer : seen_.progress.peers)
    if (peer.who.id != seen_.self && peer.claim.ready && peer.claim.trains(branch)
        && peer.vitals.share_priority && (!peer.who.client_mode || seen_.is_connected(peer.who.id)))
      holders.push_back(&peer);
  auto keep_if_any = [&](auto preferred) {
    if (std::ranges::any_of(holders, preferred))
      std::erase_if(holders, [&](const auto* peer) { return !preferred(peer); });
  };
  keep_if_any([this](const auto* peer) { return has(peer->who.id); });
  keep_if_any([](const auto* peer) { return !peer->claim.auxiliary; }); // they pass on old states
  if (how_.many_groups) // whose optimizers make no steps
    keep_if_any([](const auto* peer) { return !peer->claim.reduces_only; });
  keep_if_any([this](const auto* peer) { return merges_.averaging().contains(peer->who.id); });
  std::ranges::stable_sort(holders, std::greater{}, [this](const auto* peer) {
    return std::pair{seen_.known.covers(peer->who.id), *peer->vitals.share_priority};
  });
  std::vector<peer_record> out;
  for (const auto* peer : holders)
    out.push_back(peer->who);
  return out;
}

} // namespace waggle
