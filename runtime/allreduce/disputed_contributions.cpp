#include "runtime/allreduce/disputed_contributions.hpp"

#include <utility>

namespace waggle {

void disputed_contributions::claim(const std::map<std::uint32_t, member_set>& wrong) {
  auto now = round_.now();
  for (const auto& [part, members] : wrong) {
    if (!ours_.try_emplace(part, dispute{members, now}).second)
      continue;
    members.for_each([&](std::size_t member) {
      round_.port->log(round_.name_of(member)
                       + " contributed something else than it pledged, to part "
                       + std::to_string(part));
    });
    round_.watch.fault(now);
    auto leader = round_.protocol.leader();
    round_.send_to(leader == round_.self() ? round_.view().contributor_set()
                                           : member_set::only(leader),
                   wire::round_challenge{round_.plan().id, round_.view().number, part});
  }
}

bool disputed_contributions::on_challenge(std::size_t from, std::uint32_t part) {
  auto owner = round_.parts().owner(part, round_.view());
  auto leader = round_.protocol.leader();
  bool disputes = from == owner && owner != round_.self();
  if (disputes && leader == round_.self() && !is_answered_for(part)) {
    early_.insert(part);
    if (!disputing_.contains(owner)) {
      disputing_.insert(owner);
      round_.watch.fault(round_.now());
      round_.watch.advanced(round_.now());
    }
    ask(part);
  }
  if (from == leader && owner != round_.self())
    show(part);
  return disputes;
}

/// We lead: has all contributors show what they pledged, once we know what that is. The reducer
/// might not ask the one that it accuses.
void disputed_contributions::ask(std::uint32_t part) {
  if (!pledges_.missing().empty() || early_.erase(part) == 0 || witnessed_.contains(part)
      || is_answered_for(part))
    return;
  const auto& view = round_.view();
  auto asked = view.contributor_set() - member_set::only(round_.parts().owner(part, view));
  witnessed_.emplace(part, dispute{asked - member_set::only(round_.self()), round_.now()});
  round_.send_to(asked, wire::round_challenge{round_.plan().id, view.number, part});
  show(part);
}

/// Our own contribution, to its reducer and to the leader.
void disputed_contributions::show(std::uint32_t part) {
  const auto& view = round_.view();
  if (!view.contributor_set().contains(round_.self()) || !round_.is_filled(part)
      || !shown_.insert(part).second)
    return;
  auto bytes = round_.contribution(part);
  if (!bytes)
    return; // we have not pledged anything
  auto head = round_.header(part, wire::part_kind::evidence);
  head.contributors = view.contributors;
  head.member = static_cast<std::uint32_t>(round_.self());
  head.weight = round_.request.weight;
  round_.send_to(member_set::only(round_.parts().owner(part, view))
                   | member_set::only(round_.protocol.leader()),
                 head, *bytes);
}

bool disputed_contributions::on_shown(std::size_t from, const wire::part& head,
                                      const payload& body) {
  auto leader = round_.protocol.leader();
  auto owner = round_.parts().owner(head.index, round_.view());
  if (owner == round_.self()) {
    if (from == head.member || from == leader)
      take(head.index, head, body);
    return true;
  }
  if (leader != round_.self() || from != head.member || from == owner)
    return false;
  witness(head.index, head, body);
  return true;
}

/// We lead, and see what the contributor says that it pledged.
void disputed_contributions::witness(std::uint32_t part, const wire::part& head,
                                     const payload& body) {
  auto known = witnessed_.find(part);
  if (known == witnessed_.end() || !known->second.wrong.contains(head.member))
    return;
  if (!pledges_.covers(head.member, part, contribution_digest(head.weight, body.view()))) {
    return round_.refuse(member_set::only(head.member), ec::protocol_violation,
                         " shows another contribution than the one pledged");
  }
  known->second.wrong.erase(head.member);
  round_.tell(round_.parts().owner(part, round_.view()), head, body);
}

void disputed_contributions::take(std::uint32_t part, const wire::part& head, const payload& body) {
  auto known = ours_.find(part);
  auto shown = contribution_digest(head.weight, body.view());
  if (known == ours_.end() || !known->second.wrong.contains(head.member)
      || !pledges_.covers(head.member, part, shown))
    return;
  if (round_.weights.told(head.member).value_or(head.weight) != head.weight)
    return round_.refuse(head.member, ec::bad_weight);
  if (auto added = round_.own.replace(part, head.member, head.weight, body); !added)
    return round_.refuse(head.member, added.error().code);
  pledges_.received(part, head.member, shown);
  known->second.wrong.erase(head.member);
  if (known->second.wrong.empty())
    sum_again(part);
}

void disputed_contributions::sum_again(std::uint32_t part) {
  ours_.erase(part);
  auto over = round_.view().contributor_set();
  auto out = round_.result.memory_for_sum(part);
  auto sum = round_.own.reducer(part).reduce(over, {out.get(), round_.parts()[part].count});
  for (const auto& found : sum.excluded)
    if (!round_.over)
      round_.refuse(member_set::only(found.member), found.reason);
  if (!sum.excluded.empty() || round_.over)
    return;
  round_.send_sum(part, sum.weight_sum, out);
  round_.result.put(part, out);
  if (ours_.empty())
    settled_();
}

bool disputed_contributions::may_correct(std::size_t from, const wire::part& head) {
  const auto& view = round_.view();
  return head.kind == wire::part_kind::result && head.view == view.number
         && head.contributors == view.contributors && pledges_.applies()
         && from == round_.parts().owner(head.index, view) && !is_answered_for(head.index)
         && corrected_.insert(head.index).second;
}

void disputed_contributions::on_tick() {
  for (auto part : std::set{early_})
    ask(part);
  // Who reveals its share has what it needs.
  std::erase_if(witnessed_, [this](const auto& each) { return is_answered_for(each.first); });
  auto now = round_.now();
  auto late = [&](const std::map<std::uint32_t, dispute>& disputes, milliseconds most) {
    member_set out;
    for (const auto& [part, each] : disputes)
      if (now - each.since >= most)
        out = out | each.wrong;
    return out;
  };
  auto stall = round_.config.stall_timeout;
  bool leads = round_.protocol.leader() == round_.self();
  auto at_fault = late(witnessed_, 2 * stall) | late(ours_, (leads ? 2 : 4) * stall);
  auto number = round_.view().number;
  at_fault.for_each([&](std::size_t member) {
    if (round_.over || round_.view().number != number)
      return;
    round_.refuse(member_set::only(member), ec::protocol_violation,
                  " does not show the contribution that it pledged");
  });
}

void disputed_contributions::enter() {
  ours_.clear();
  witnessed_.clear();
  early_.clear();
  disputing_ = {};
  shown_.clear();
  corrected_.clear();
}

} // namespace waggle
