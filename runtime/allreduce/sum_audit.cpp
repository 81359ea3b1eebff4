#include "runtime/allreduce/sum_audit.hpp"

#include <algorithm>
#include <cstring>

namespace waggle {

sum_audit::sum_audit(round_state& round, const by_view<digest>& shares, events on)
  : round_(round), shares_(shares), on_(std::move(on)), pledges_(round, shares),
    open_(round.parts(), round.plan().reduce_by) {}

bool sum_audit::sums_are_right() {
  if (!pledges_.applies())
    return true;
  pledges_.send_shares();
  if (!pledges_.missing().empty() || !pledges_.agree() || round_.over)
    return false;
  if (!drawn_)
    draw();
  if (!drawn_ || round_.over)
    return false; // evidence that was here already was wrong
  if (!relays_are_right())
    return false;
  auto self = round_.self();
  auto waits = unchecked();
  bool ours = waits.contains(self);
  if (ours && std::none_of(drawn_->begin(), drawn_->end(), [&](const sum_check& check) {
        return check.checker == self && open_.is_open(check.part);
      })) {
    auto number = round_.view().number;
    checked_by_.add(self, number, {});
    waits.erase(self);
    round_.send_to(round_.view().participant_set(), wire::round_checked{round_.plan().id, number});
  }
  if (!waits.empty())
    return false;
  round_.refuse(std::exchange(lied_, {}) & round_.view().participant_set(), ec::wrong_sum);
  return drawn_ && !round_.over;
}

member_set sum_audit::unchecked() const {
  member_set out;
  for (const auto& check : drawn_.value_or(std::vector<sum_check>{}))
    if (checked_by_.find(check.checker, round_.view().number) == nullptr)
      out.insert(check.checker);
  return out;
}

bool sum_audit::on_checked(std::size_t from, std::uint32_t view) {
  if (view > view_number_max) {
    round_.refuse(from, ec::protocol_violation);
    return false;
  }
  checked_by_.add(from, view, {});
  return true;
}

/// Whose challenge of the part counts, once the key is known: its checker's; that of all who were
/// sent its contributions back.
bool sum_audit::may_challenge(std::uint32_t part, std::size_t member) const {
  return drawn_
         && (is_sent_back(part)
             || std::ranges::find(*drawn_, sum_check{part, member}) != drawn_->end());
}

void sum_audit::relayed(std::size_t from, const wire::part& head, const payload& body) {
  if (!is_sent_back(head.index))
    return;
  auto& kept = relayed_[head.index];
  kept = {from, {}};
  for (const auto& each : round_.contributions_in(head, body))
    kept.contributions.emplace(each.member, contribution_digest(each.weight, each.values.view()));
}

void sum_audit::enter() {
  std::erase_if(relayed_,
                [this](const auto& relay) { return !round_.transfers.has_result(relay.first); });
}

/// REQUIRES: all members hold the same pledges, and have revealed their shares: those who sent
/// contributions back answer for them.
bool sum_audit::relays_are_right() {
  std::erase_if(relayed_, [this](const auto& relay) {
    return std::ranges::all_of(relay.second.contributions, [&](const auto& given) {
      return pledges_.covers(given.first, relay.first, given.second);
    });
  });
  for (const auto& [part, relay] : std::map{relayed_})
    if (!round_.over && drawn_ && owner_of(part) != round_.self())
      challenge(part);
  return relayed_.empty() && !round_.over && drawn_;
}

void sum_audit::draw() {
  member_set able;
  for (std::size_t i = 0; i < round_.plan().members.size(); ++i)
    if (!round_.is_client(i))
      able.insert(i);
  round_.watch.advanced(round_.now());
  const auto& view = round_.view();
  drawn_ = draw_checks(result_key(shares_, view), round_.plan().reduce_by.check_share,
                       round_.parts(), view, able);
  auto drawn = *drawn_;
  for (const auto& [part, checker] : drawn) {
    auto owner = owner_of(part);
    if (owner == round_.self())
      show(part, member_set::only(checker), round_.own.reducer(part));
    else if (checker == round_.self())
      open_.open(part, owner, false, round_.now());
  }
  for (const auto& [who, parts] : std::exchange(early_challenges_, {}))
    for (auto part : parts)
      challenged(who, part);
  take_early();
}

void sum_audit::take_early() {
  for (const auto& [from, event] : std::exchange(early_evidence_, {})) {
    const auto& head = std::get<wire::part>(event.what);
    if (!drawn_ || round_.over)
      event.release(); // what was here before it was wrong, so another view has begun
    else if (open_.is_open(head.index))
      on_evidence(from, event, head);
    else
      early_evidence_.emplace_back(from, event);
  }
}

/// Sends what all contributors gave to the part.
void sum_audit::show(std::uint32_t part, member_set to, const part_reducer& contributions) {
  auto head = round_.header(part, wire::part_kind::evidence);
  head.contributors = round_.view().contributors;
  round_.view().contributor_set().for_each([&](std::size_t member) {
    auto shown = contributions.contribution_of(member);
    head.member = static_cast<std::uint32_t>(member);
    head.weight = shown.weight;
    round_.send_to(to, head, shown.values);
  });
}

void sum_audit::on_evidence(std::size_t from, const inbound_event& event, const wire::part& head) {
  const auto& view = round_.view();
  if (!round_.fits(head, event.body.size)
      || !first_view(round_.plan()).contributor_set().contains(head.member)) {
    event.release();
    return round_.refuse(from, ec::wrong_shape);
  }
  // Shown to all because of a challenge that we have not received yet, perhaps.
  bool unasked =
    drawn_ && !open_.is_open(head.index) && !challenges_.contains(head.index)
    && from == owner_of(head.index)
    && (is_sent_back(head.index) || std::ranges::any_of(*drawn_, [&](const sum_check& drawn) {
          return drawn.part == head.index && drawn.checker != round_.self();
        }));
  bool early = head.view > view.number || (head.view == view.number && (!drawn_ || unasked));
  if (early) {
    if (!round_.may_park(from, 4 * round_.parts().size() * round_.plan().members.size())) {
      event.release();
      return round_.refuse(from, ec::overloaded);
    }
    if (head.view > view.number)
      round_.parked.push_back(event);
    else
      early_evidence_.emplace_back(from, event);
    return;
  }
  if (head.view != view.number || !open_.is_open(head.index))
    return event.release(); // late
  auto owner = owner_of(head.index);
  // The leader of a challenged part passes on what it was shown, if that gives the sum it holds.
  bool by_leader =
    from == round_.protocol.leader() && from != owner && open_.is_challenged(head.index);
  if (by_leader)
    open_.vouch(head.index);
  if (!view.contributor_set().contains(head.member) || (from != owner && !by_leader)
      || open_.evidence(head.index).present().contains(head.member))
    return event.release(); // sent again
  round_.watch.advanced(round_.now());
  auto contribution = contribution_digest(head.weight, event.body.view());
  auto added = pledges_.covers(head.member, head.index, contribution)
                 ? open_.add(head.index, head.member, head.weight, event.body, round_.now())
                 : status{ec::wrong_sum};
  event.release();
  if (!added && from == owner && !open_.is_vouched(head.index))
    return found_wrong(head.index, "another contribution than the one pledged");
  if (added && open_.evidence(head.index).present() == view.contributor_set())
    check(head.index);
}

/// All contributions to the part are here, as they were pledged.
void sum_audit::check(std::uint32_t part) {
  const auto& evidence = open_.evidence(part);
  auto count = round_.parts()[part].count;
  auto over = round_.view().contributor_set();
  auto memory = std::make_shared<float_vector>(count);
  std::shared_ptr<float> out{memory, memory->data()};
  bool sound = evidence.reduce(over, *memory).excluded.empty();
  bool right = sound;
  if (sound) {
    if (!is_sent_back(part))
      (void)round_.encode_sum(part, evidence, over, out);
    right = std::memcmp(out.get(), round_.result.values(part).get(), count * sizeof(float)) == 0;
  }
  round_.port->count_check(right);
  // Everybody sums what is sent back, so what was pledged proves the sum.
  bool proves = sound && is_sent_back(part);
  auto relay = proves ? relayed_.extract(part) : decltype(relayed_)::node_type{};
  if (!right && (open_.is_vouched(part) || proves)) {
    auto by = relay ? relay.mapped().from : owner_of(part);
    round_.result.put(part, out); // we alone were sent another sum, perhaps
    on_.corrected();
    right = true;
    round_.port->log(round_.name_of(by) + " sent a sum that is not of what was pledged, in part "
                     + std::to_string(part));
    if (proves) // accused once nothing keeps us from preparing: who accuses and does not, may go
      lied_.insert(by);
    else
      round_.refuse(by, ec::wrong_sum);
    if (round_.over || !open_.is_open(part))
      return;
  }
  if (!right)
    return found_wrong(part, "a sum that the contributions do not give");
  // The challenger may be the only one that was shown or sent something else.
  if (open_.is_challenged(part) && round_.protocol.leader() == round_.self())
    show(part, challenges_.at(part), evidence);
  if (proves)
    proven_.emplace(part, evidence);
  open_.close(part);
  on_.checked();
}

void sum_audit::found_wrong(std::uint32_t part, const std::string& how) {
  auto owner = owner_of(part);
  round_.port->log(round_.name_of(owner) + " sent " + how + ", in part " + std::to_string(part));
  open_.start_over(part, round_.now());
  challenge(part);
  // If we alone challenge it, the others see what we see, and accuse it.
  bool by_us_alone =
    challenges_.contains(part) && challenges_.at(part) == member_set::only(round_.self());
  if (!by_us_alone || round_.protocol.leader() == round_.self())
    round_.refuse(owner, ec::wrong_sum);
}

/// All others are to see what we saw: nobody needs to believe us, and we need not accuse anybody.
void sum_audit::challenge(std::uint32_t part) {
  if (!may_challenge(part, round_.self()) || challenges_[part].contains(round_.self()))
    return;
  challenges_[part].insert(round_.self());
  round_.port->log("challenges part " + std::to_string(part));
  round_.watch.fault(round_.now());
  open_.open(part, owner_of(part), true, round_.now());
  round_.send_to(round_.view().participant_set(),
                 wire::round_challenge{round_.plan().id, round_.view().number, part});
  take_early();
}

void sum_audit::on_challenge(std::size_t from, const wire::round_challenge& what) {
  if (what.view == round_.view().number)
    challenged(from, what.part);
}

/// One challenge of each member counts.
void sum_audit::challenged(std::size_t from, std::uint32_t part) {
  const auto& view = round_.view();
  if (part >= round_.parts().size() || !view.participant_set().contains(from))
    return;
  if (!drawn_) { // taken up when we know the key
    if (auto& early = early_challenges_[from]; early.size() < early_challenges_max)
      early.insert(part);
    return;
  }
  auto owner = owner_of(part);
  // Others pass a challenge on to us: it may have been sent to all but us.
  bool passed_on =
    owner == round_.self() && std::ranges::find(*drawn_, part, &sum_check::part) != drawn_->end();
  if (!(passed_on || may_challenge(part, from)) || challenges_[part].contains(from))
    return;
  bool first = challenges_[part].empty();
  challenges_[part].insert(from);
  round_.watch.fault(round_.now());
  round_.watch.advanced(round_.now());
  if (owner == round_.self()) {
    if (first)
      show(part, view.participant_set(), round_.own.reducer(part));
  } else if (auto proof = proven_.find(part); proof == proven_.end()) {
    if (first)
      round_.tell(owner, wire::round_challenge{round_.plan().id, view.number, part});
    open_.open(part, owner, true, round_.now());
    take_early();
  } else if (round_.protocol.leader() == round_.self()) {
    show(part, member_set::only(from), proof->second);
  }
}

void sum_audit::on_tick() {
  if (!pledges_.applies() || !drawn_)
    return;
  auto number = round_.view().number;
  for (const auto& late : open_.overdue(round_.now(), round_.config.stall_timeout)) {
    if (round_.over || round_.view().number != number)
      return;
    if (late.challenged)
      round_.suspect(late.owner, ec::stalled);
    else
      challenge(late.part);
  }
}

void sum_audit::forget() {
  pledges_.enter();
  drawn_.reset();
  open_.clear();
  challenges_.clear();
  proven_.clear();
  early_challenges_.clear();
  for (const auto& [from, event] : std::exchange(early_evidence_, {}))
    event.release();
}

} // namespace waggle
