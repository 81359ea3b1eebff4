// How the members check each other's sums (runtime/averaging/sum_checks.hpp):
//
//   shares of all ─ draw ─ a part of ours ─► show its contributions to its checker
//                        └ we check ─ evidence ─► sum again ─ equal ─► checked ─► all: prepared
//                                   └ none, or another sum ─► challenge: it is shown to everybody

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/allreduce/check_limits.hpp"
#include "runtime/allreduce/round_engine.hpp"

namespace waggle {

// -- checking ------------------------------------------------------------------------------------

/// Once the key is known. False: something has to be awaited first, or is wrong.
bool round_engine::sums_are_right() {
  if (!checks_this_view())
    return true;
  send_shares();
  if (!pledges_.missing(transfers_.view()).empty() || !pledges_agree() || reported_)
    return false;
  if (!drawn_)
    draw();
  if (!drawn_ || reported_)
    return false; // evidence that was here already was wrong
  auto waits = unchecked();
  bool ours = waits.contains(request_.self_index);
  if (ours && std::none_of(drawn_->begin(), drawn_->end(), [&](const sum_check& check) {
        return check.checker == request_.self_index && checks_.is_open(check.part);
      })) {
    auto number = transfers_.view().number;
    checked_by_.insert_or_assign(request_.self_index, number);
    waits.erase(request_.self_index);
    send_to(transfers_.view().participant_set(), wire::round_checked{plan().id, number});
  }
  return waits.empty();
}

/// The checkers that have not said yet that the sums are right. If only they waited and others
/// prepared, a wrong result would count as one that may have been committed.
member_set round_engine::unchecked() const {
  member_set out;
  for (const auto& check : drawn_.value_or(std::vector<sum_check>{})) {
    auto said = checked_by_.find(check.checker);
    if (said == checked_by_.end() || said->second != transfers_.view().number)
      out.insert(check.checker);
  }
  return out;
}

void round_engine::on_checked(std::size_t from, std::uint32_t view) {
  if (!checked() || view > view_number_max)
    return refuse(from, ec::protocol_violation);
  auto& said = checked_by_.try_emplace(from, view).first->second;
  said = std::max(said, view);
  prepare();
}

void round_engine::draw() {
  const auto& view = transfers_.view();
  auto self = request_.self_index;
  member_set able;
  for (std::size_t i = 0; i < plan().members.size(); ++i)
    if (plan().members[i].mode != member_mode::client)
      able.insert(i);
  watch_.advanced(now_());
  drawn_ =
    draw_checks(shares_.of(view), plan().reduce_by.check_share, transfers_.parts(), view, able);
  auto drawn = *drawn_;
  for (const auto& [part, checker] : drawn) {
    auto owner = transfers_.parts().owner(part, view);
    if (owner == self)
      show(part, checker, own_.reducer(part));
    else if (checker == self)
      checks_.open(part, owner, false, now_());
  }
  for (const auto& [who, parts] : std::exchange(early_challenges_, {}))
    for (auto part : parts)
      on_challenge(who, part);
  take_early_evidence();
}

void round_engine::take_early_evidence() {
  for (const auto& event : std::exchange(early_evidence_, {}))
    if (drawn_)
      handle(event);
    else
      event.release(); // what was here before it was wrong, so another view has begun
}

/// Sends what all contributors gave to the part.
void round_engine::show(std::uint32_t part, std::size_t to, const part_reducer& contributions) {
  auto head = header(part, wire::part_kind::evidence);
  head.contributors = transfers_.view().contributors;
  transfers_.view().contributor_set().for_each([&](std::size_t member) {
    auto shown = contributions.contribution_of(member);
    head.member = static_cast<std::uint32_t>(member);
    head.weight = shown.weight;
    tell(to, head, shown.values);
  });
}

void round_engine::on_evidence(std::size_t from, const inbound_event& event,
                               const wire::part& head) {
  const auto& view = transfers_.view();
  bool known = checked() && fits(head, event.body.size)
               && first_view(plan()).contributor_set().contains(head.member);
  if (!known) {
    event.release();
    return refuse(from, ec::wrong_shape);
  }
  // Shown to all because of a challenge that we have not received yet, perhaps.
  bool unasked = drawn_ && !checks_.is_open(head.index) && !challenges_.contains(head.index)
                 && from == transfers_.parts().owner(head.index, view)
                 && std::any_of(drawn_->begin(), drawn_->end(), [&](const sum_check& drawn) {
                      return drawn.part == head.index && drawn.checker != request_.self_index;
                    });
  bool early = head.view > view.number || (head.view == view.number && (!drawn_ || unasked));
  if (early) {
    if (++parked_from_[from] > 4 * transfers_.parts().size() * plan().members.size()) {
      event.release();
      return refuse(from, ec::overloaded);
    }
    return (head.view > view.number ? parked_ : early_evidence_).push_back(event);
  }
  if (head.view != view.number || !checks_.is_open(head.index))
    return event.release(); // late
  auto owner = transfers_.parts().owner(head.index, view);
  // The leader of a challenged part passes on what it was shown, if that gives the sum it holds.
  bool by_leader = from == protocol_.leader() && from != owner && checks_.is_challenged(head.index);
  if (by_leader)
    checks_.vouch(head.index);
  if (!view.contributor_set().contains(head.member) || (from != owner && !by_leader)
      || checks_.evidence(head.index).present().contains(head.member))
    return event.release(); // sent again
  bytes_received_ += event.body.size;
  watch_.advanced(now_());
  auto contribution = contribution_digest(head.weight, event.body.view());
  auto added = pledges_.covers(head.member, head.index, contribution)
                 ? checks_.add(head.index, head.member, head.weight, event.body, now_())
                 : status{ec::wrong_sum};
  event.release();
  if (!added && from == owner && !checks_.is_vouched(head.index))
    return found_wrong(head.index, "another contribution than the one pledged");
  if (added && checks_.evidence(head.index).present() == view.contributor_set())
    check_sum(head.index);
}

/// All contributions to the part are here, as they were pledged.
void round_engine::check_sum(std::uint32_t part) {
  const auto& evidence = checks_.evidence(part);
  const auto& cut = transfers_.parts()[part];
  auto over = transfers_.view().contributor_set();
  auto memory = std::make_shared<float_vector>(cut.count);
  std::shared_ptr<float> out{memory, memory->data()};
  auto outcome = evidence.reduce(over, *memory);
  bool right = outcome.excluded.empty();
  if (right) {
    (void)encode_sum(part, evidence, over, out);
    right = std::memcmp(out.get(), result_.values(part).get(), cut.count * sizeof(float)) == 0;
  }
  port_->count_check(right);
  if (!right && checks_.is_vouched(part)) {
    result_.put(part, out); // the owner sent another sum to us alone
    own_groups_.clear();
    right = true;
    refuse(transfers_.parts().owner(part, transfers_.view()), ec::wrong_sum);
    if (reported_ || !checks_.is_open(part))
      return;
  }
  if (!right)
    return found_wrong(part, "a sum that the contributions do not give");
  // The challenger may be the only one that was shown or sent something else.
  bool by_other = checks_.is_challenged(part) && challenges_.at(part) != request_.self_index;
  if (by_other && protocol_.leader() == request_.self_index)
    show(part, challenges_.at(part), evidence);
  checks_.close(part);
  prepare();
}

void round_engine::found_wrong(std::uint32_t part, const std::string& how) {
  auto owner = transfers_.parts().owner(part, transfers_.view());
  port_->log(short_name(plan().members[owner].peer.id) + " sent " + how + ", in part "
             + std::to_string(part));
  checks_.start_over(part, now_());
  challenge(part);
  bool ours = challenges_.contains(part) && challenges_.at(part) == request_.self_index;
  if (!ours || protocol_.leader() == request_.self_index)
    refuse(owner, ec::wrong_sum);
}

/// All others are to see what we saw: nobody needs to believe us, and we need not accuse anybody.
void round_engine::challenge(std::uint32_t part) {
  auto self = request_.self_index;
  auto owner = transfers_.parts().owner(part, transfers_.view());
  bool drawn =
    drawn_ && std::find(drawn_->begin(), drawn_->end(), sum_check{part, self}) != drawn_->end();
  if (!drawn || !challenges_.try_emplace(part, self).second)
    return;
  port_->log("challenges part " + std::to_string(part));
  watch_.fault(now_());
  checks_.open(part, owner, true, now_());
  send_to(transfers_.view().participant_set(),
          wire::round_challenge{plan().id, transfers_.view().number, part});
}

/// Each part has one checker, and one challenge of it counts.
void round_engine::on_challenge(std::size_t from, std::uint32_t part) {
  const auto& view = transfers_.view();
  if (part >= transfers_.parts().size() || !view.participant_set().contains(from))
    return;
  if (!drawn_) { // taken up when we know the key
    if (auto& early = early_challenges_[from]; early.size() < early_challenges_max)
      early.insert(part);
    return;
  }
  if (std::find(drawn_->begin(), drawn_->end(), sum_check{part, from}) == drawn_->end()
      || !challenges_.try_emplace(part, from).second)
    return;
  auto owner = transfers_.parts().owner(part, view);
  watch_.fault(now_());
  watch_.advanced(now_());
  if (owner != request_.self_index) {
    checks_.open(part, owner, true, now_());
    return take_early_evidence();
  }
  view.participant_set().for_each([&](std::size_t member) {
    if (member != request_.self_index)
      show(part, member, own_.reducer(part));
  });
}

/// Owners that show nothing.
void round_engine::check_evidence() {
  if (!checks_this_view() || !drawn_)
    return;
  auto number = transfers_.view().number;
  for (const auto& late : checks_.overdue(now_(), config_.stall_timeout)) {
    if (reported_ || transfers_.view().number != number)
      return;
    if (late.challenged)
      suspect(late.owner, ec::stalled);
    else
      challenge(late.part);
  }
}

/// A view begins.
void round_engine::forget_checks() {
  comparing_pledges_ = judged_pledges_ = asked_for_shares_ = false;
  wants_shares_ = sent_shares_ = {};
  drawn_.reset();
  checks_.clear();
  challenges_.clear();
  early_challenges_.clear();
  for (const auto& event : std::exchange(early_evidence_, {}))
    event.release();
}

} // namespace waggle
