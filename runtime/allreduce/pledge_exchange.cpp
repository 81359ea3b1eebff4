#include "runtime/allreduce/pledge_exchange.hpp"

#include <cstring>
#include <span>
#include <utility>

namespace waggle {

pledge_exchange::pledge_exchange(round_state& round, const by_view<digest>& shares)
  : round_(round), shares_(shares), pledges_(round.view().contributor_set(), round.parts().size()),
    contributed_(round.parts().size()) {}

// -- pledging ------------------------------------------------------------------------------------

void pledge_exchange::contribute(std::uint32_t part, const digest& contribution) {
  if (!contributed_[part].is_zero())
    return;
  contributed_[part] = contribution;
  if (++contributed_parts_ == contributed_.size())
    pledge();
}

void pledge_exchange::pledge() {
  const auto& view = round_.view();
  auto self = round_.self();
  bool contributes = first_view(round_.plan()).contributor_set().contains(self);
  if (round_.over || !applies() || pledged_ == view.number
      || (contributes && contributed_parts_ < contributed_.size()))
    return;
  pledged_ = view.number;
  const auto& id = round_.plan().id;
  auto commitment = share_commitment(id, view.number, self, round_.port->secret(id, view.number));
  auto list = contributes ? contributed_ : std::vector<digest>{};
  (void)pledges_.add(self, view.number, commitment, list);
  round_.send_to(
    view.participant_set(),
    wire::round_pledge{id, view.number, static_cast<std::uint32_t>(self), commitment, contributes},
    contributes ? copy_to_payload(std::as_bytes(std::span{list})) : payload{});
}

bool pledge_exchange::on_pledge(std::size_t from, const inbound_event& event,
                                const wire::round_pledge& what) {
  auto bytes = event.body.view();
  bool fits = bytes.size() == (what.contributes ? contributed_.size() * digest::size : 0);
  std::vector<digest> list(fits ? bytes.size() / digest::size : 0);
  if (fits && !list.empty())
    std::memcpy(list.data(), bytes.data(), bytes.size());
  event.release();
  bool valid = fits && what.member < round_.plan().members.size() && what.view <= view_number_max
               && round_.may_say(from, what.member, what.view);
  if (!valid
      || (!pledges_.add(what.member, what.view, what.commitment, std::move(list))
          && what.member == from)) {
    round_.refuse(from, ec::protocol_violation);
    return false;
  }
  if (round_.is_client(from) && what.member == from && round_.protocol.leader() == round_.self()
      && what.view == round_.view().number)
    round_.send_to(round_.clients_besides(from), what, event.body);
  return true;
}

bool pledge_exchange::own_parts_agree() {
  member_set at_fault;
  auto contributors = round_.view().contributor_set();
  for (auto index : round_.transfers.owned())
    for (const auto& [member, contribution] : received_[index])
      if (contributors.contains(member) && !covers(member, index, contribution))
        at_fault.insert(member);
  round_.refuse(at_fault, ec::protocol_violation, " contributed something else than it pledged");
  return at_fault.empty();
}

// -- comparing -----------------------------------------------------------------------------------

/// Participants that were sent other pledges than we were, as they said with their shares.
member_set pledge_exchange::otherwise() const {
  const auto& view = round_.view();
  member_set out;
  if (!missing().empty())
    return out; // a member is in a later view already
  auto ours = all();
  said_.members(view.participant_set(), view.number).for_each([&](std::size_t member) {
    if (said_.of(member, view.number) != ours)
      out.insert(member);
  });
  return out;
}

/// REQUIRES: pledges and shares of all participants are here.
bool pledge_exchange::agree() {
  if (!otherwise().empty()) {
    compare();
    return false;
  }
  // Everybody holds the same pledges now, so nobody can have chosen its share later.
  const auto& view = round_.view();
  member_set at_fault;
  view.participant_set().for_each([&](std::size_t member) {
    if (!opens(member, shares_.of(member, view.number)))
      at_fault.insert(member);
  });
  if (at_fault.empty())
    return true;
  // Its commitment proves which share is the right one, so whoever leads can tell us. A member that
  // accused others instead would be left out itself (round_protocol::end_doubts).
  if (round_.protocol.leader() == round_.self())
    round_.refuse(at_fault, ec::protocol_violation);
  else if (!std::exchange(asked_for_shares_, true))
    round_.tell(round_.protocol.leader(),
                wire::round_pledge_digests{round_.plan().id, view.number, pledges_.each_of(view)});
  return false;
}

void pledge_exchange::send_shares() {
  const auto& view = round_.view();
  if (round_.protocol.leader() != round_.self() || !shares_.missing(view).empty()
      || !missing().empty())
    return;
  auto due = wants_shares_ - sent_shares_;
  sent_shares_ = sent_shares_ | due;
  due.for_each([&](std::size_t to) {
    view.participant_set().for_each([&](std::size_t member) {
      if (member != round_.self() && member != to)
        round_.tell(to, wire::round_key_share{round_.plan().id, view.number,
                                              static_cast<std::uint32_t>(member),
                                              shares_.of(member, view.number), all()});
    });
  });
}

void pledge_exchange::compare() {
  const auto& view = round_.view();
  if (!std::exchange(comparing_, true)) {
    round_.watch.advanced(round_.now());
    round_.watch.fault(round_.now());
    round_.port->log("compares pledges: members were sent different ones");
    auto ours = pledges_.each_of(view);
    lists_.add(round_.self(), view.number, ours);
    round_.send_to(view.participant_set(),
                   wire::round_pledge_digests{round_.plan().id, view.number, std::move(ours)});
  }
  judge();
}

void pledge_exchange::on_digests(std::size_t from, const wire::round_pledge_digests& what,
                                 bool shared) {
  if (what.view > view_number_max)
    return round_.refuse(from, ec::protocol_violation);
  lists_.add(from, what.view, what.pledges);
  if (what.view != round_.view().number || !applies() || !shared || !missing().empty())
    return;
  if (what.pledges == pledges_.each_of(round_.view())) {
    wants_shares_.insert(from);
    send_shares();
  }
  compare();
}

void pledge_exchange::judge() {
  if (round_.over || !comparing_ || judged_)
    return;
  const auto& view = round_.view();
  auto self = round_.self();
  std::map<std::size_t, std::vector<digest>> lists;
  bool all_here = true;
  view.participant_set().for_each([&](std::size_t member) {
    // Clients have no links with each other.
    bool unheard = member != self && round_.is_client(member) && round_.is_client(self);
    if (round_.protocol.lost().contains(member) || unheard)
      return;
    const auto* list = lists_.find(member, view.number);
    if (list == nullptr)
      all_here = false;
    else if (list->size() == view.participant_set().size())
      lists.emplace(member, *list);
  });
  if (!all_here || !lists.contains(self))
    return;
  judged_ = true;
  auto unequal = round_pledges::unequal(view, lists, self);
  // Who says that it was sent something else, and lists the same as we, lies.
  otherwise().for_each([&](std::size_t member) {
    if (lists.contains(member) && lists.at(member) == lists.at(self))
      unequal.insert(member);
  });
  round_.refuse(unequal, ec::unequal_results, " pledged different things to different members");
}

void pledge_exchange::enter() {
  comparing_ = judged_ = asked_for_shares_ = false;
  wants_shares_ = sent_shares_ = {};
}

} // namespace waggle
