#include "runtime/progress/client_group.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/core/check.hpp"

namespace waggle {

namespace {

using peer_report = swarm_progress::peer;

bool knows(const helper_state& own, const peer_id& peer) {
  return own.known != nullptr && own.known->covers(peer);
}

/// Whether the group that trains `branch` has a member that others can reach.
bool can_be_reached(const digest& branch, const helper_state& own) {
  std::size_t clients = 0;
  std::size_t known = 0;
  bool claimed = false;
  for (const auto& peer : own.connected) {
    if (!peer.claim.trains(branch) || peer.who.id == own.self)
      continue;
    clients += peer.who.client_mode ? 1 : 0;
    known += knows(own, peer.who.id) ? 1 : 0;
    if (!peer.who.client_mode && knows(own, peer.who.id))
      return true;
    claimed = claimed || !peer.who.client_mode;
  }
  if (!claimed || known == 0)
    return claimed;
  auto confirm = std::count_if(own.connected.begin(), own.connected.end(), [&](const auto& peer) {
    return peer.claim.trains(branch) && knows(own, peer.who.id) && peer.claim.group_size > clients;
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
std::uint64_t target_of(const helper_state& own) {
  std::map<std::uint64_t, std::size_t> of_known;
  std::map<std::uint64_t, std::size_t> of_all;
  for (const auto& peer : own.connected) {
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

help_choice choose_help(const helper_state& own) {
  bool in_group = !own.members.empty();
  history_view as_trainer{own.self, in_group ? own.past : history{}, in_group, true, false};
  as_trainer.known = own.known;
  // A member that has not reported yet that our group forked is no reason to leave the group.
  auto present = own.connected;
  for (auto& peer : present)
    if (in_group && own.members.contains(peer.who.id) && !own.past.parent.is_zero()
        && peer.claim.past.branch == own.past.parent && peer.epoch <= own.past.forked_at)
      peer.claim.past = own.past;
  help_choice choice{choose_history(as_trainer, present)};
  const auto& preferred = choice.preferred;
  choice.needed = preferred.what == course::stay
                    ? clients_among(own) > 0
                    : preferred.what == course::enter && !can_be_reached(preferred.branch, own);
  return choice;
}

std::uint32_t clients_among(const helper_state& own) {
  std::uint32_t clients = 0;
  for (const auto& member : own.members) {
    auto known = std::find_if(own.connected.begin(), own.connected.end(),
                              [&](const auto& peer) { return peer.who.id == member; });
    bool client =
      known != own.connected.end() ? known->who.client_mode : own.links.contains(member);
    clients += member != own.self && client ? 1 : 0;
  }
  return clients;
}

group_samples samples_toward(const helper_state& own, const sample_claims& claims,
                             steady_time now) {
  group_samples sum{.target = target_of(own)};
  for (const auto& peer : own.connected)
    if (counts_here(peer, own))
      sum.samples += claims.counted(peer.who.id, std::min(peer.samples, sum.target), now);
  return sum;
}

void observe_samples(const helper_state& own, sample_claims& claims) {
  auto target = target_of(own);
  for (const auto& peer : own.connected)
    if (counts_here(peer, own))
      claims.observe(peer.who.id, std::min(peer.samples, target));
}

bool weighs_samples(double weight_sum, std::size_t contributors) {
  return weight_sum > static_cast<double>(contributors);
}

std::vector<peer_record> holders_of(const helper_state& own) {
  std::vector<const peer_report*> holders;
  for (const auto& peer : own.connected)
    if (peer.claim.ready && !peer.claim.auxiliary && peer.claim.trains(own.past.branch)
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

client_group::action client_group::decide(const std::vector<swarm_progress::peer>& peers,
                                          steady_time now) {
  own_.connected.clear();
  for (const auto& peer : peers)
    if (own_.links.contains(peer.who.id) && !refused_.contains(peer.who.id))
      own_.connected.push_back(peer);
  if (is_member() && !in_round_)
    observe_samples(own_, claims_);
  if (place_ == place::entering || now < enter_after_)
    return {};
  action out;
  auto [preferred, needed] = choose_help(own_);
  out.choice = std::move(preferred);
  if (out.choice->what == course::enter) {
    // At once, even if nobody needs it there: each round here would be evidence for ours.
    if (is_member())
      out.leave = "history " + short_name(out.choice->branch) + " is preferred";
    out.enter = needed;
  } else if (needed) {
    clientless_since_.reset();
    out.call = samples_toward(own_, claims_, now).full();
  } else if (is_member()) {
    clientless_since_ = clientless_since_.value_or(now);
    if (now - *clientless_since_ >= how_.patience_without_clients)
      out.leave = "no client there needs this node";
  }
  return out;
}

void client_group::on_disconnected(const peer_id& peer) {
  own_.links.erase(peer);
  refused_.erase(peer);
}

void client_group::entered(const history& past, epoch_id epoch, const std::vector<peer_id>& members,
                           steady_time now) {
  WAGGLE_CHECK(place_ == place::entering, "");
  place_ = place::member;
  own_.past = past;
  own_.epoch = epoch;
  clientless_since_.reset();
  claims_.begin_epoch(now); // earlier claims were made to another group
  take_members(members);
}

void client_group::refused(const std::vector<peer_record>& too_long, steady_time now) {
  place_ = place::outside;
  enter_after_ = now + how_.entry_pause;
  for (const auto& peer : too_long)
    refused_.insert(peer.id);
}

std::uint64_t client_group::begin_round(steady_time now) {
  if (std::exchange(in_round_, true))
    return 0;
  claims_.begin_epoch(now);
  return ++rounds_;
}

sample_claims::shortfall client_group::advance(const history& past,
                                               const std::vector<peer_id>& contributors,
                                               const std::vector<peer_id>& participants,
                                               double weight_sum, bool complete, steady_time now) {
  in_round_ = false;
  known_.on_round(contributors);
  own_.past = past;
  own_.epoch = own_.epoch.next();
  weighs_samples_ = weighs_samples_ || weighs_samples(weight_sum, contributors.size());
  // Without any weight nobody has delivered anything, whatever is averaged.
  if (!complete || (!weighs_samples_ && weight_sum > 0))
    return {};
  return claims_.end_round(participants, weight_sum, 0, now);
}

void client_group::left(steady_time now) {
  place_ = place::outside;
  in_round_ = false;
  weighs_samples_ = false;
  own_.members.clear();
  own_.past = {};
  own_.epoch = {};
  clientless_since_.reset();
  enter_after_ = now + how_.entry_pause;
}

history_claim client_group::claim() const {
  return history_claim{.past = own_.past,
                       .group_size = static_cast<std::uint32_t>(own_.members.size()),
                       .ready = is_member() && !holders().empty(),
                       .auxiliary = true};
}

} // namespace waggle
