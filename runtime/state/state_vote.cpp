#include "runtime/state/state_vote.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/epoch_limit.hpp"

namespace waggle {

state_vote::state_vote(std::vector<peer_record> donors, epoch_id epoch_min,
                       state_comparison compare, bool rounded)
  : compare_(compare), rounded_(rounded) {
  if (compares() && donors.size() > donors_max)
    donors.resize(donors_max);
  for (auto& donor : donors)
    donors_.push_back({std::move(donor), phase::idle, epoch_min, {}});
  decide();
}

bool state_vote::same_state(const state_offer& a, const state_offer& b) const {
  bool same_content = a.content == b.content && a.bytes == b.bytes;
  return a.epoch == b.epoch && a.parameters == b.parameters
         && (compare_ == state_comparison::parameters || same_content);
}

std::size_t state_vote::count(phase at) const {
  return static_cast<std::size_t>(
    std::ranges::count_if(donors_, [at](const entry& e) { return e.at == at; }));
}

std::size_t state_vote::present() const {
  return donors_.size() - count(phase::absent);
}

/// So many equal offers are more than half of all donors that are there. Of two that differ nobody
/// can tell which one lies: the first one is believed, and the other one asked if its state is
/// damaged.
std::size_t state_vote::needed() const {
  return compares() && present() > 2 ? present() / 2 + 1 : 1;
}

state_vote::entry* state_vote::find(const peer_id& donor) {
  auto found = std::ranges::find_if(donors_, [&](const entry& e) { return e.donor.id == donor; });
  return found == donors_.end() ? nullptr : &*found;
}

std::vector<state_vote::question> state_vote::next() {
  std::vector<question> out;
  for (auto& e : donors_)
    if (e.at == phase::due) {
      e.at = phase::asked;
      out.push_back({e.donor, e.epoch_min});
    }
  return out;
}

void state_vote::offered(const peer_id& donor, const state_offer& offer) {
  if (offer.epoch.value() > epoch_max)
    return refused(donor, {ec::protocol_violation, "it offers an epoch that no run reaches"});
  auto* e = find(donor);
  if (e == nullptr || e->at != phase::asked)
    return;
  if (offer.epoch < e->epoch_min)
    return refused(donor, {ec::epoch_mismatch, "its state is older than the run"});
  e->offer = offer;
  e->at = phase::offered;
  decide();
}

void state_vote::refused(const peer_id& donor, failure why) {
  auto* e = find(donor);
  if (e == nullptr || e->at != phase::asked)
    return;
  // One that is there and busy, or a moment behind, still counts: otherwise whoever keeps the
  // honest donors busy would be the only one that is left.
  bool there = why.code == ec::overloaded || why.code == ec::epoch_mismatch;
  e->at = there && compares() ? phase::refused : phase::absent;
  why_ = std::move(why);
  decide();
}

void state_vote::hurry() {
  if (standing_ != standing::open || !compares())
    return;
  for (auto& e : donors_)
    if (e.at == phase::idle)
      e.at = phase::due;
}

/// Whether enough donors offer the same state.
bool state_vote::choose() {
  for (const auto& one : donors_) {
    if (one.at != phase::offered)
      continue;
    auto votes = std::ranges::count_if(donors_, [&](const entry& other) {
      return other.at == phase::offered && same_state(one.offer, other.offer);
    });
    if (static_cast<std::size_t>(votes) < needed())
      continue;
    chosen_ = one.offer;
    return true;
  }
  return false;
}

/// Asks the donors that are behind for a later epoch. False: that would not help.
bool state_vote::align() {
  std::vector<std::uint64_t> epochs;
  for (const auto& e : donors_)
    if (e.at == phase::offered)
      epochs.push_back(e.offer.epoch.value());
  if (epochs.size() < needed() || alignments_ == alignments_max)
    return false;
  std::ranges::sort(epochs);
  if (epochs.front() == epochs.back()) // they offer different states of one epoch
    return false;
  // The honest ones are `needed`, so one of them has reached this epoch, whatever others claim.
  auto target = epochs[needed() - 1];
  // Donors that go on while they are asked are asked for an epoch ahead of all, and wait for it.
  target += (std::uint64_t{1} << (2 * alignments_)) - 1;
  if (epochs.front() >= target)
    ++target;
  ++alignments_;
  for (auto& e : donors_)
    if (e.at == phase::offered && e.offer.epoch.value() < target) {
      e.at = phase::due;
      e.epoch_min = epoch_id{target};
    }
  return true;
}

void state_vote::decide() {
  if (standing_ != standing::open)
    return;
  if (choose()) {
    standing_ = standing::chosen;
    return;
  }
  bool begins = !std::exchange(begun_, true);
  if (begins || count(phase::due) + count(phase::asked) == 0) {
    // Only as many as it takes: each donor copies and hashes its state.
    auto more = !compares() ? 1 : begins ? needed() : donors_.size();
    for (auto& e : donors_)
      if (e.at == phase::idle && more > 0) {
        e.at = phase::due;
        --more;
      }
  }
  if (count(phase::due) + count(phase::asked) > 0 || align())
    return;
  bool enough = count(phase::offered) >= needed();
  if (enough && rounded_) {
    chosen_ = std::ranges::find(donors_, phase::offered, &entry::at)->offer;
    standing_ = standing::chosen;
    return;
  }
  standing_ = standing::failed;
  if (enough)
    why_ = alignments_ == alignments_max
             ? failure{ec::epoch_mismatch, "the donors' epochs end faster than they are compared"}
             : failure{ec::hash_mismatch,
                       "the donors offer different states of one epoch, none of them most"};
}

std::deque<state_vote::vote> state_vote::voters() const {
  std::deque<vote> out;
  for (const auto& e : donors_)
    if (e.at == phase::offered && same_state(e.offer, *chosen_))
      out.push_back({e.donor, e.offer});
  return out;
}

std::vector<peer_id> state_vote::dissenters() const {
  std::vector<peer_id> out;
  for (const auto& e : donors_)
    if (!rounded_ && e.at == phase::offered && e.offer.epoch == chosen_->epoch
        && !same_state(e.offer, *chosen_))
      out.push_back(e.donor.id);
  return out;
}

} // namespace waggle
