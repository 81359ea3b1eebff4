// What members pledge before it is known which sums are checked
// (runtime/averaging/round_pledges.hpp):
//
//   our parts are sent ─► pledge ─► participants
//   result and all pledges here, contributions to our parts agree with them ─► share of the key
//   shares of all ─ one is not as pledged ─► ask whoever leads for it
//                 └ members were sent different pledges ─► compare ─► who sent them is suspected

#include <cstring>
#include <span>
#include <utility>

#include "runtime/allreduce/round_engine.hpp"

namespace waggle {

// -- pledging ------------------------------------------------------------------------------------

digest round_engine::digest_to_pledge(const std::optional<payload>& bytes) const {
  return checked() && bytes ? contribution_digest(request_.weight, bytes->view()) : digest{};
}

/// Our contribution to a part is being sent.
void round_engine::pledge_part(std::uint32_t index, const digest& contribution) {
  if (!checked() || !contributed_[index].is_zero())
    return;
  contributed_[index] = contribution;
  if (++contributed_parts_ == contributed_.size())
    pledge();
}

void round_engine::pledge() {
  const auto& view = transfers_.view();
  bool contributes = first_view(plan()).contributor_set().contains(request_.self_index);
  if (reported_ || !checks_this_view() || pledged_ == view.number
      || (contributes && contributed_parts_ < contributed_.size()))
    return;
  pledged_ = view.number;
  auto self = request_.self_index;
  auto commitment =
    share_commitment(plan().id, view.number, self, port_->secret(plan().id, view.number));
  auto list = contributes ? contributed_ : std::vector<digest>{};
  (void)pledges_.add(self, view.number, commitment, list);
  send_to(view.participant_set(),
          wire::round_pledge{plan().id, view.number, static_cast<std::uint32_t>(self), commitment,
                             contributes},
          contributes ? copy_to_payload(std::as_bytes(std::span{list})) : payload{});
}

void round_engine::on_pledge(std::size_t from, const inbound_event& event,
                             const wire::round_pledge& what) {
  auto bytes = event.body.view();
  bool fits =
    checked() && bytes.size() == (what.contributes ? contributed_.size() * digest::size : 0);
  std::vector<digest> list(fits ? bytes.size() / digest::size : 0);
  if (fits && !list.empty())
    std::memcpy(list.data(), bytes.data(), bytes.size());
  event.release();
  if (!fits || what.member >= plan().members.size() || what.view > view_number_max
      || !may_say(from, what.member, what.view))
    return refuse(from, ec::protocol_violation);
  bool first = pledges_.add(what.member, what.view, what.commitment, std::move(list));
  if (!first && what.member == from)
    return refuse(from, ec::protocol_violation);
  bool of_client = plan().members[from].mode == member_mode::client && what.member == from;
  if (of_client && protocol_.leader() == request_.self_index
      && what.view == transfers_.view().number)
    send_to(clients_besides(from), what, event.body);
  collect();
}

/// Whether the contributions to our parts are what their members pledged. Before we reveal our
/// share: afterwards we answer for them.
bool round_engine::own_parts_agree() {
  member_set at_fault;
  auto contributors = transfers_.view().contributor_set();
  for (auto index : transfers_.owned())
    for (const auto& [member, contribution] : received_[index])
      if (contributors.contains(member) && !pledges_.covers(member, index, contribution))
        at_fault.insert(member);
  at_fault.for_each([&](std::size_t member) {
    if (reported_)
      return;
    port_->log(short_name(plan().members[member].peer.id)
               + " contributed something else than it pledged");
    refuse(member, ec::protocol_violation);
  });
  return at_fault.empty();
}

// -- comparing pledges ----------------------------------------------------------------------------

/// Participants that heard other pledges than we did, as they said with their shares.
member_set round_engine::pledged_otherwise() const {
  const auto& view = transfers_.view();
  member_set out;
  if (!pledges_.missing(view).empty())
    return out; // a member is in a later view already
  auto ours = pledges_.of(view);
  for (const auto& [member, said] : said_pledges_)
    if (view.participant_set().contains(member) && said.view == view.number && said.all != ours)
      out.insert(member);
  return out;
}

/// REQUIRES: pledges and shares of all participants are here.
bool round_engine::pledges_agree() {
  if (!pledged_otherwise().empty()) {
    compare_pledges();
    return false;
  }
  // Everybody holds the same pledges now, so nobody can have chosen its share later.
  const auto& view = transfers_.view();
  member_set at_fault;
  view.participant_set().for_each([&](std::size_t member) {
    if (!pledges_.opens(plan().id, view, member, shares_.share_of(view, member)))
      at_fault.insert(member);
  });
  if (at_fault.empty())
    return true;
  // Its commitment proves which share is the right one, so whoever leads can tell us. A member that
  // accused others instead would be left out itself (round_protocol::end_doubts).
  if (protocol_.leader() != request_.self_index) {
    if (!std::exchange(asked_for_shares_, true))
      tell(protocol_.leader(),
           wire::round_pledge_digests{plan().id, view.number, pledges_.each_of(view)});
  } else
    at_fault.for_each([&](std::size_t member) {
      if (!reported_)
        refuse(member, ec::protocol_violation);
    });
  return false;
}

/// To members that were sent a wrong share, once we have all.
void round_engine::send_shares() {
  const auto& view = transfers_.view();
  if (protocol_.leader() != request_.self_index || !shares_.missing(view).empty()
      || !pledges_.missing(view).empty())
    return;
  auto due = wants_shares_ - sent_shares_;
  sent_shares_ = sent_shares_ | due;
  due.for_each([&](std::size_t to) {
    view.participant_set().for_each([&](std::size_t member) {
      if (member != request_.self_index && member != to)
        tell(to, wire::round_key_share{plan().id, view.number, static_cast<std::uint32_t>(member),
                                       shares_.share_of(view, member), pledges_.of(view)});
    });
  });
}

void round_engine::compare_pledges() {
  const auto& view = transfers_.view();
  if (!std::exchange(comparing_pledges_, true)) {
    watch_.advanced(now_());
    watch_.fault(now_());
    port_->log("compares pledges: members were sent different ones");
    auto ours = pledges_.each_of(view);
    pledge_lists_.add(request_.self_index, view.number, ours);
    send_to(view.participant_set(),
            wire::round_pledge_digests{plan().id, view.number, std::move(ours)});
  }
  judge_pledges();
}

void round_engine::on_pledge_digests(std::size_t from, const wire::round_pledge_digests& what) {
  if (!checked() || what.view > view_number_max)
    return refuse(from, ec::protocol_violation);
  pledge_lists_.add(from, what.view, what.pledges);
  const auto& view = transfers_.view();
  if (what.view != view.number || view.adopted || shared_ != view.number
      || !pledges_.missing(view).empty())
    return;
  if (what.pledges == pledges_.each_of(view)) {
    wants_shares_.insert(from);
    send_shares();
  }
  compare_pledges();
}

void round_engine::judge_pledges() {
  if (reported_ || !comparing_pledges_ || judged_pledges_)
    return;
  const auto& view = transfers_.view();
  const auto& members = plan().members;
  std::map<std::size_t, std::vector<digest>> lists;
  bool all = true;
  view.participant_set().for_each([&](std::size_t member) {
    // Clients have no links with each other.
    bool unheard = member != request_.self_index && members[member].mode == member_mode::client
                   && members[request_.self_index].mode == member_mode::client;
    if (protocol_.lost().contains(member) || unheard)
      return;
    if (!pledge_lists_.has(member, view.number))
      all = false;
    else if (const auto& list = pledge_lists_.of(member, view.number);
             list.size() == view.participant_set().size())
      lists.emplace(member, list);
  });
  if (!all || !lists.contains(request_.self_index))
    return;
  judged_pledges_ = true;
  auto unequal = round_pledges::unequal(view, lists, request_.self_index);
  // Who says that it heard something else, and lists the same as we, lies.
  pledged_otherwise().for_each([&](std::size_t member) {
    if (lists.contains(member) && lists.at(member) == lists.at(request_.self_index))
      unequal.insert(member);
  });
  unequal.erase(request_.self_index);
  unequal.for_each([&](std::size_t member) {
    if (reported_)
      return;
    port_->log(short_name(members[member].peer.id)
               + " pledged different things to different members");
    refuse(member, ec::unequal_results);
  });
}

} // namespace waggle
