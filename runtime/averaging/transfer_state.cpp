#include "runtime/averaging/transfer_state.hpp"

#include <algorithm>

namespace waggle {

transfer_state::transfer_state(const round_plan& plan, std::size_t self, steady_time now)
  : parts_(plan), self_(self), members_(plan.members.size()), view_(first_view(plan)),
    entered_(now), part_states_(parts_.size()), member_states_(plan.members.size()) {
  for (auto& member : member_states_)
    member.progress = now;
  recount();
}

void transfer_state::enter(const round_view& view, steady_time now) {
  bool same_sum = view.contributors == view_.contributors;
  for (std::size_t i = 0; i < part_states_.size(); ++i) {
    auto& part = part_states_[i];
    bool same_owner = parts_.can_reduce(view) && part.result_from == parts_.owner(i, view);
    part.have_result = part.have_result && same_sum && (view.adopted || same_owner);
  }
  bool in_order = view.adopted || view.follows(view_);
  view_ = view;
  entered_ = now;
  for (auto& member : member_states_)
    member.progress = now;
  forget_passing_owners(in_order);
  recount();
}

void transfer_state::forget_passing_owners(bool in_order) {
  if (!parts_.can_reduce(view_))
    return;
  for (std::size_t i = 0; i < part_states_.size(); ++i) {
    member_set stay;
    stay.insert(parts_[i].default_owner);
    if (in_order)
      stay.insert(parts_.owner(i, view_));
    stay.insert(self_); // our own contributions are never dropped
    part_states_[i].sent_to = part_states_[i].sent_to & stay;
  }
}

void transfer_state::recount() {
  missing_results_ = 0;
  for (auto& member : member_states_)
    member.missing_contributions = member.missing_results = 0;
  if (!parts_.can_reduce(view_)) {
    missing_results_ = part_states_.size(); // no participant may reduce: this view cannot complete
    return;
  }
  for (std::size_t i = 0; i < part_states_.size(); ++i) {
    const auto& part = part_states_[i];
    auto owner = parts_.owner(i, view_);
    if (!part.have_result) {
      ++missing_results_;
      ++member_states_[owner].missing_results;
    }
    if (owner == self_)
      (view_.contributor_set() - part.contributed).for_each([&](std::size_t member) {
        ++member_states_[member].missing_contributions;
      });
  }
}

std::vector<transfer_state::outgoing_part> transfer_state::take_outgoing() {
  std::vector<outgoing_part> out;
  if (!view_.contributor_set().contains(self_) || !parts_.can_reduce(view_))
    return out;
  std::vector<std::vector<std::uint32_t>> by_owner(members_);
  std::size_t longest = 0;
  for (std::uint32_t i = 0; i < part_states_.size(); ++i) {
    auto owner = parts_.owner(i, view_);
    if (part_states_[i].sent_to.contains(owner))
      continue;
    part_states_[i].sent_to.insert(owner);
    by_owner[owner].push_back(i);
    longest = std::max(longest, by_owner[owner].size());
  }
  for (std::size_t turn = 0; turn < longest; ++turn)
    for (std::size_t step = 1; step <= members_; ++step) {
      auto owner = (self_ + step) % members_;
      if (turn < by_owner[owner].size())
        out.push_back({by_owner[owner][turn], owner});
    }
  return out;
}

std::vector<std::uint32_t> transfer_state::owned() const {
  std::vector<std::uint32_t> out;
  if (!parts_.can_reduce(view_))
    return out;
  for (std::uint32_t i = 0; i < part_states_.size(); ++i)
    if (parts_.owner(i, view_) == self_)
      out.push_back(i);
  return out;
}

transfer_state::arrival transfer_state::contribution(std::uint32_t part, std::size_t from,
                                                     std::uint32_t number, steady_time now) {
  if (part >= part_states_.size() || from >= members_)
    return arrival::refuse;
  auto& state = part_states_[part];
  if (state.contributed.contains(from)) {
    // No member is asked to send again to a part's default owner, see forget_passing_owners.
    bool again = number > 0 && parts_[part].default_owner != self_;
    return from == self_ || again ? arrival::ignore : arrival::refuse;
  }
  if (!parts_.can_reduce(view_) || parts_.owner(part, view_) != self_)
    return number > view_.number ? arrival::later : arrival::ignore;
  state.contributed.insert(from);
  if (view_.contributor_set().contains(from))
    --member_states_[from].missing_contributions;
  member_states_[from].progress = now;
  return arrival::accept;
}

transfer_state::arrival transfer_state::result(std::uint32_t part, std::size_t from,
                                               std::uint64_t contributors, std::uint32_t number,
                                               steady_time now) {
  if (part >= part_states_.size() || from >= members_)
    return arrival::refuse;
  if (number > view_.number)
    return arrival::later;
  if (contributors != view_.contributors)
    return number < view_.number ? arrival::ignore : arrival::refuse;
  if (!parts_.can_reduce(view_) || parts_.owner(part, view_) != from)
    return number < view_.number ? arrival::ignore : arrival::refuse;
  auto& state = part_states_[part];
  if (state.have_result)
    return arrival::ignore;
  state.have_result = true;
  state.result_from = from;
  --missing_results_;
  --member_states_[from].missing_results;
  member_states_[from].progress = now;
  return arrival::accept;
}

bool transfer_state::awaits_result(std::uint32_t part, std::size_t from,
                                   std::uint64_t contributors) const {
  return part < part_states_.size() && contributors == view_.contributors
         && !part_states_[part].have_result && parts_.can_reduce(view_)
         && parts_.owner(part, view_) == from;
}

bool transfer_state::has_result_of(std::size_t member) const {
  return std::any_of(part_states_.begin(), part_states_.end(), [&](const part_state& part) {
    return part.have_result && part.result_from == member;
  });
}

void transfer_state::forget_result(std::uint32_t part) {
  part_states_[part].have_result = false;
  recount();
}

member_set transfer_state::stalled(steady_time now, milliseconds contributions,
                                   milliseconds results) const {
  member_set out;
  for (std::size_t i = 0; i < members_; ++i) {
    const auto& member = member_states_[i];
    if (i == self_)
      continue;
    auto silent = now - member.progress;
    if ((member.missing_contributions > 0 && silent >= contributions)
        || (member.missing_results > 0 && silent >= results))
      out.insert(i);
  }
  return out;
}

member_set transfer_state::late(member_set newcomers, steady_time now,
                                milliseconds patience) const {
  auto complete = entered_; // without the newcomers
  for (std::size_t i = 0; i < members_; ++i) {
    if (i == self_ || newcomers.contains(i))
      continue;
    if (member_states_[i].missing_contributions > 0)
      return {};
    complete = std::max(complete, member_states_[i].progress);
  }
  member_set out;
  if (now - complete >= std::max<steady_time::duration>(patience, complete - entered_))
    newcomers.for_each([&](std::size_t i) {
      if (member_states_[i].missing_contributions > 0)
        out.insert(i);
    });
  return out;
}

member_set transfer_state::late_results(member_set slow, steady_time now,
                                        milliseconds patience) const {
  auto complete = entered_; // without the slow ones
  member_set out;
  for (std::size_t i = 0; i < members_; ++i) {
    const auto& member = member_states_[i];
    bool awaited = slow.contains(i) && i != self_ && member.missing_results > 0;
    if (member.missing_contributions > 0 || (member.missing_results > 0 && !awaited))
      return {};
    complete = std::max(complete, member.progress);
    if (awaited)
      out.insert(i);
  }
  return now - complete >= patience ? out : member_set{};
}

} // namespace waggle
