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
  // What is challenged here may lead back to here at once, if its evidence came first.
  auto number = round_.view().number;
  if (judging_ == number) {
    judge_again_ = true;
    return false;
  }
  auto further_up = std::exchange(judging_, number);
  bool right = false;
  do {
    judge_again_ = false;
    right = judge();
  } while (!right && judge_again_ && !round_.over && round_.view().number == number);
  judging_ = further_up;
  return right;
}

bool sum_audit::judge() {
  if (!drawn_) { // what is agreed on stays so
    pledges_.send_shares();
    if (!pledges_.missing().empty() || !pledges_.agree() || round_.over)
      return false;
    draw();
  }
  if (!drawn_ || round_.over)
    return false; // evidence that was here already was wrong
  if (!relays_are_right())
    return false;
  auto self = round_.self();
  auto waits = unchecked();
  if (waits.contains(self) && to_check_.empty()) {
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
  return checkers_ - checked_by_.members(checkers_, round_.view().number);
}

bool sum_audit::on_checked(std::size_t from, std::uint32_t view) {
  if (view > view_number_max) {
    round_.refuse(from, ec::protocol_violation);
    return false;
  }
  bool news = checked_by_.find(from, view) == nullptr;
  checked_by_.add(from, view, {});
  return news;
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
  auto is_gone = [this](const auto& relay) { return !round_.transfers.has_result(relay.first); };
  std::erase_if(relayed_, is_gone);
  std::erase_if(wrong_, is_gone);
  for (const auto& [part, from] : wrong_)
    unchallenged_.push_back(part);
}

/// REQUIRES: all members hold the same pledges, and have revealed their shares: those who sent
/// contributions back answer for them.
bool sum_audit::relays_are_right() {
  for (const auto& [part, relay] : std::exchange(relayed_, {})) {
    bool as_pledged = std::ranges::all_of(relay.contributions, [&, at = part](const auto& given) {
      return pledges_.covers(given.first, at, given.second);
    });
    if (!as_pledged && wrong_.emplace(part, relay.from).second)
      unchallenged_.push_back(part);
  }
  while (!unchallenged_.empty() && !round_.over && drawn_) {
    auto part = unchallenged_.front();
    unchallenged_.pop_front();
    if (wrong_.contains(part) && owner_of(part) != round_.self())
      challenge(part);
  }
  return wrong_.empty() && !round_.over && drawn_;
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
  drawn_at_ = round_.now();
  // As long as the sums took, as far as the round's deadline permits: as much is sent again.
  auto stall = round_.config.stall_timeout;
  evidence_limit_ = std::max<steady_time::duration>(
    2 * stall, std::min<steady_time::duration>(
                 std::max<steady_time::duration>(4 * stall, round_.now() - round_.marks.began),
                 round_.config.deadline / 2));
  auto drawn = *drawn_;
  for (const auto& [part, checker] : drawn) {
    checkers_.insert(checker);
    if (checker == round_.self())
      to_check_.insert(part);
  }
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
  std::vector<std::uint32_t> early;
  for (const auto& [part, shown] : early_evidence_)
    early.push_back(part);
  for (auto part : early)
    take_early(part);
}

/// Takes what was shown of the part before its check was open.
void sum_audit::take_early(std::uint32_t part) {
  if (!drawn_ || round_.over || !open_.is_open(part))
    return;
  auto shown = early_evidence_.extract(part);
  if (shown)
    for (const auto& [from, event] : shown.mapped()) {
      if (!drawn_ || round_.over)
        event.release(); // what was here before it was wrong, so another view has begun
      else
        on_evidence(from, event, std::get<wire::part>(event.what));
    }
}

/// Challenges and what is shown keep the others waiting, but not for ever: for the time that a
/// check and a challenge may take.
void sum_audit::advanced() {
  if (round_.now() - drawn_at_ < 2 * evidence_limit_)
    round_.watch.advanced(round_.now());
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
  bool leads = round_.protocol.leader() == round_.self();
  // Shown because of a challenge that we have not received yet, perhaps.
  bool unasked =
    drawn_ && !open_.is_open(head.index) && !challenges_.contains(head.index)
    && from == owner_of(head.index)
    && ((is_sent_back(head.index) && (leads || owner_of(head.index) == round_.protocol.leader()))
        || std::ranges::any_of(*drawn_, [&](const sum_check& drawn) {
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
      early_evidence_[head.index].emplace_back(from, event);
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
  advanced();
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
  auto relay = proves ? wrong_.extract(part) : decltype(wrong_)::node_type{};
  if (!right && (open_.is_vouched(part) || proves)) {
    auto by = relay ? relay.mapped() : owner_of(part);
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
  bool leads = round_.protocol.leader() == round_.self();
  if (open_.is_challenged(part) && leads)
    show(part, challenges_.at(part), evidence);
  if (proves) // whoever challenges it later is shown it by the leader
    proven_.emplace(part, leads ? std::optional{evidence} : std::nullopt);
  open_.close(part);
  to_check_.erase(part);
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
  take_early(part);
}

void sum_audit::on_challenge(std::size_t from, const wire::round_challenge& what) {
  const auto& view = round_.view();
  if (what.view != view.number || what.part >= round_.parts().size()
      || !view.participant_set().contains(from) || !pledges_.applies()
      || from == owner_of(what.part))
    return;
  challenged(from, what.part);
}

/// What is sent back, everybody checks: only those that were sent something else need to see it,
/// and the leader, who passes it on to them. If that is the reducer, all.
member_set sum_audit::audience(std::uint32_t part, std::size_t challenger, bool first) const {
  auto leader = round_.protocol.leader();
  if (!is_sent_back(part) || leader == round_.self())
    return first ? round_.view().participant_set() : member_set{};
  auto out = member_set::only(leader) | member_set::only(challenger);
  return first ? out : out - member_set::only(leader);
}

/// One challenge of each member counts.
void sum_audit::challenged(std::size_t from, std::uint32_t part) {
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
  auto leader = round_.protocol.leader();
  bool is_ours = !is_sent_back(part) || owner == round_.self() || leader == owner;
  if (!is_ours && leader != round_.self())
    return; // it is not shown to us
  bool first = challenges_[part].empty();
  challenges_[part].insert(from);
  round_.watch.fault(round_.now());
  advanced();
  if (owner == round_.self()) {
    show(part, audience(part, from, first), round_.own.reducer(part));
  } else if (auto proof = proven_.find(part); proof == proven_.end()) {
    if (first)
      round_.tell(owner, wire::round_challenge{round_.plan().id, round_.view().number, part});
    open_.open(part, owner, true, round_.now());
    take_early(part);
  } else if (proof->second) {
    show(part, member_set::only(from), *proof->second);
  }
}

void sum_audit::on_tick() {
  if (!pledges_.applies() || !drawn_)
    return;
  auto number = round_.view().number;
  for (const auto& late :
       open_.overdue(round_.now(), round_.config.stall_timeout, evidence_limit_)) {
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
  checkers_ = {};
  to_check_.clear();
  unchallenged_.clear();
  open_.clear();
  challenges_.clear();
  proven_.clear();
  early_challenges_.clear();
  for (const auto& [part, shown] : std::exchange(early_evidence_, {}))
    for (const auto& [from, event] : shown)
      event.release();
}

} // namespace waggle
