// This file is long: it is one state machine, whose handlers the proof in README.md and the
// model in tests/model/ name.

#include "runtime/averaging/round_protocol.hpp"

#include <algorithm>
#include <utility>

#include "runtime/averaging/part_table.hpp"
#include "runtime/core/check.hpp"

namespace waggle {

round_protocol::round_protocol(const round_plan& plan, std::size_t self, options opts)
  : rules_(plan), members_(plan.members.size()), self_(self), options_(opts),
    view_(first_view(plan)) {
  WAGGLE_CHECK(self < members_ && members_ <= round_members_max, std::to_string(self));
  senders_ = view_.contributor_set();
  for (std::size_t i = 0; i < members_; ++i)
    if (plan.members[i].mode != member_mode::client)
      leaders_.insert(i);
}

member_set round_protocol::reported_members() const {
  return reports_.members(member_set::first(members_), view_.number);
}

member_set round_protocol::prepared_members() const {
  member_set out;
  reported_members().for_each([&](std::size_t i) {
    if (reports_.of(i, view_.number) == result_)
      out.insert(i);
  });
  return out;
}

round_view round_protocol::stated_view() const {
  auto out = view_;
  if (prepared_ || committed_)
    out.result = result_;
  return out;
}

bool round_protocol::holds(const round_view& decided) const {
  return result_complete_ && decided.contributors == view_.contributors
         && (decided.result == result_ || decided.result == replaced_);
}

member_set round_protocol::others(member_set of) const {
  of.erase(self_);
  return of;
}

std::uint32_t round_protocol::term_above(std::uint32_t floor) const {
  auto members = static_cast<std::uint32_t>(members_);
  auto term = floor / views_per_term;
  auto ours = term - term % members + static_cast<std::uint32_t>(self_);
  return (ours > term ? ours : ours + members) * views_per_term;
}

takeover_promise round_protocol::promise() const {
  takeover_promise out{promised_, true, stated_view(), prepared_ || committed_, committed_};
  if (rules_.faulty > 0 && !ended_) {
    if (view_.adopted)
      out.value = view_.result;
    else if (prepared_)
      out.value = options_.plain ? options_.plain() : result_;
  }
  return out;
}

// -- own data -------------------------------------------------------------------------------------

round_protocol::actions round_protocol::on_result_complete(std::uint32_t number,
                                                           const digest& result) {
  actions out;
  if (ended_ || number != view_.number || prepared_)
    return out;
  result_complete_ = true;
  result_ = result;
  replaced_ = {};
  complete(out);
  return out;
}

round_protocol::actions round_protocol::on_same_result(std::uint32_t number, const digest& result) {
  auto before = result_; // others may have committed it
  auto out = on_result_complete(number, result);
  if (!ended_ && number == view_.number)
    replaced_ = before;
  return out;
}

/// REQUIRES: result_complete_.
void round_protocol::complete(actions& out) {
  if (view_.adopted && view_.result != result_) {
    result_complete_ = false;
    out.push_back(await_repair{});
    return;
  }
  // After a promise to a higher number this member must not prepare this view any more.
  if (promised_ == view_.number)
    prepare(out);
}

void round_protocol::prepare(actions& out) {
  prepared_ = true;
  was_prepared_ = true;
  reports_.correct(self_, view_.number, result_);
  out.push_back(send_prepared{others(view_.participant_set()), stated_view()});
  commit_if_all_prepared(out);
}

round_protocol::actions round_protocol::on_most_agree(const digest& result, steady_time now) {
  actions out;
  if (ended_ || !prepared_ || !lead() || view_.adopted)
    return out;
  if (rules_.faulty > 0) {
    start_takeover(out, now);
    return out;
  }
  // Nothing but our result can have been committed in this view: all participants would have to
  // have prepared it, and we have not prepared another.
  replaced_ = std::exchange(result_, result);
  propose(out, {view_.number + 1, view_.contributors, view_.participants, true, result_},
          view_.participant_set());
  return out;
}

round_protocol::actions round_protocol::give_up(failure why) {
  actions out;
  if (ended_)
    return out;
  // The leader notifies all members, so that another one takes over at once.
  auto audience = others(view_.participant_set());
  if (coordinator() != self_)
    audience = member_set{std::uint64_t{1} << coordinator()};
  audience.for_each([&](std::size_t member) {
    out.push_back(send_suspect{member, view_.number, self_, why.code});
  });
  end_with(out, std::move(why));
  return out;
}

void round_protocol::end_with(actions& out, failure why) {
  ended_ = true;
  takeover_.reset();
  out.push_back(fail{std::move(why)});
}

void round_protocol::abort_all(actions& out, ec reason) {
  out.push_back(send_abort{others(member_set::first(members_)), reason});
  // The view's leader may not know of our takeover, if nobody could hear from it for a while, and
  // would wait for us until we count as lost.
  if (leader() != self_)
    out.push_back(send_suspect{leader(), view_.number, self_, reason});
  end_with(out, {reason, {}});
}

// -- losing members ------------------------------------------------------------------------------

round_protocol::actions round_protocol::on_suspicion(std::size_t member, ec reason,
                                                     steady_time now) {
  actions out;
  if (ended_ || member == self_ || member >= members_)
    return out;
  bool news = lost_.emplace(member, reason).second;
  if (news && member == coordinator())
    yields_to_.reset(); // it was alive when it overtook us
  if (takeover_) {
    if (counts_though_lost(reason))
      return out;
    takeover_->waiting.erase(member);
    // Its promise is void, but a report that the round is decided stays valid.
    if (auto said = takeover_->promises.find(member);
        said != takeover_->promises.end() && !said->second.committed)
      takeover_->promises.erase(said);
    if (takeover_->waiting.empty())
      finish_takeover(out);
    return out;
  }
  // A candidate leader that we gave our promise to may not be part of the view.
  if (!view_.participant_set().contains(member) && member != coordinator())
    return out;
  // The coordinator decides. It may still reach a member that we cannot reach.
  if (!lead() && member != coordinator() && news && !lost_.contains(coordinator()))
    out.push_back(send_suspect{coordinator(), view_.number, member, reason});
  recover(out, now);
  return out;
}

round_protocol::actions round_protocol::on_suspect(std::size_t from, std::uint32_t view,
                                                   std::size_t member, ec reason, steady_time now) {
  actions out;
  if (committed_ && from < members_)
    pass_on_decision(out, from);
  if (ended_ || from >= members_ || member >= members_ || member == self_)
    return out;
  // Reports from members that are lost themselves do not count, except about themselves.
  if (from != member && (lost_.contains(from) || !view_.participant_set().contains(from)))
    return out;
  if (view < view_.number && from != member)
    return out; // about a previous view
  if (from == member && member == coordinator())
    yields_to_.reset(); // it is no longer ahead
  if (from != member && !lost_.contains(member)) {
    auto until = now + options_.takeover_timeout;
    auto& accused = doubts_.try_emplace(member, doubt{{}, reason, until}).first->second;
    accused.until = std::min(accused.until, until);
    accused.accusers.insert(from);
    if (accused.accusers.size() < options_.accusers)
      return out;
  }
  return on_suspicion(member, reason, now);
}

/// A pair of which one accuses the other cannot finish the round together. We reach both, so we
/// cannot tell who lies or whether their link is broken; the member that says that it cannot go on
/// is left out. So a member that accuses others harms itself alone.
void round_protocol::end_doubts(actions& out, steady_time now) {
  for (const auto& [member, doubt] : std::map{doubts_}) {
    if (!doubts_.contains(member) || now < doubts_.at(member).until || ended_)
      continue;
    doubts_.at(member).until = steady_time::max();
    if (lost_.contains(member) || coordinator() != self_)
      continue;
    auto stuck = doubt.accusers - reported_members();
    stuck.for_each([&, reason = doubt.reason](std::size_t accuser) {
      auto done = on_suspicion(accuser, reason, now);
      out.insert(out.end(), done.begin(), done.end());
    });
  }
}

void round_protocol::recover(actions& out, steady_time now) {
  if (!lead()) {
    // The view's leader, or a candidate leader that we gave our promise to, must send us a view.
    // When it is lost, the lowest participant that is not lost and may lead takes over. The others
    // wait for its takeover message.
    auto owing = lost_.find(coordinator());
    if (owing == lost_.end()) {
      successor_.reset();
      return;
    }
    if (yields_to_ == promised_)
      return;
    auto alive = view_.participant_set();
    for (const auto& [member, reason] : lost_)
      alive.erase(member);
    alive = alive - passed_over_;
    alive.insert(self_);
    // Clients have no links with each other.
    alive = alive & leaders_;
    if (alive.empty())
      return abort_all(out, ec::lost_quorum);
    auto next = alive.lowest();
    if (next == self_ || leader() == self_)
      return start_takeover(out, now);
    if (!successor_ || successor_->member != next) {
      successor_ = successor{next, now + options_.takeover_timeout};
      out.push_back(send_suspect{next, view_.number, owing->first, owing->second});
    } else if (now >= successor_->until) {
      passed_over_.insert(next);
      recover(out, now);
    }
    return;
  }
  auto alive = view_.participant_set();
  for (const auto& [member, why] : lost_)
    alive.erase(member);
  if (alive == view_.participant_set())
    return;
  if (rules_.faulty > 0)
    return rules_.is_quorum(alive) ? start_takeover(out, now) : abort_all(out, ec::lost_quorum);
  auto contributors = view_.contributor_set();
  // If all remaining participants hold the result already, nothing has to be summed again, and a
  // dropped participant may have committed it. An adopted set may have been committed before; it
  // cannot change.
  bool keep = view_.adopted || (prepared_ && prepared_members().contains(alive));
  // No member commits a view that we have not prepared. Once we have, a member may have received
  // `prepared` from all participants.
  if (!keep && prepared_)
    return start_takeover(out, now);
  if (!keep)
    contributors = contributors & alive;
  if (!rules_.is_quorum(alive))
    return abort_all(out, ec::lost_quorum);
  if (contributors.size() < options_.min_contributors)
    return abort_all(out, ec::too_few_contributors);
  auto dropped = view_.participant_set() - alive;
  // The next number of our own term: a member that promised another member a later term refuses it,
  // and its answer reaches us. Members that are left out receive it, too, so that they need not
  // wait for their deadline.
  round_view next{view_.number + 1, contributors.bits(), alive.bits(), keep, {}};
  if (keep)
    next.result = view_.adopted ? view_.result : result_;
  propose(out, next, alive | dropped);
}

void round_protocol::enter(const round_view& next, const takeover_promises& promises) {
  // Members that reduced a part may have gone with what they sent.
  bool same_sum = next.contributors == view_.contributors
                  && (next.adopted || (!options_.plain && next.participants == view_.participants));
  view_ = next;
  promised_ = next.number;
  prepared_ = false;
  compared_ = false;
  holders_ = {};
  for (const auto& [member, said] : promises)
    if (next.adopted && said.prepared && said.value == next.result
        && said.view.contributors == next.contributors)
      holders_.insert(member);
  // Accusations last, but the time to notice the loss ourselves begins anew.
  for (auto& [member, doubt] : doubts_)
    doubt.until = steady_time::max();
  result_complete_ = result_complete_ && same_sum;
  takeover_.reset();
  passed_over_ = {};
}

void round_protocol::propose(actions& out, const round_view& next, member_set audience) {
  enter(next);
  out.push_back(send_propose{others(audience), view_});
  begin_view(out);
}

void round_protocol::begin_view(actions& out) {
  out.push_back(enter_view{view_});
  if (result_complete_)
    complete(out);
  else if (rules_.faulty > 0 && view_.adopted)
    out.push_back(await_repair{});
}

round_protocol::actions round_protocol::on_propose(std::size_t from, const round_view& next,
                                                   const takeover_promises& promises) {
  actions out;
  auto everybody = member_set::first(members_);
  if (committed_ && from < members_)
    pass_on_decision(out, from);
  if (ended_ || from >= members_ || leader_of(next.number, members_) != from
      || next.number > view_number_max || next.number == view_.number)
    return out;
  if (next.number < promised_) {
    // The sender does not know of a takeover and would wait for us in vain.
    out.push_back(send_promise{from, promise()});
    return out;
  }
  if (!everybody.contains(next.participant_set()) || !senders_.contains(next.contributor_set())
      || !rules_.is_quorum(next.participant_set()) || next.contributors == 0
      || next.adopted == next.result.is_zero())
    return out;
  if (rules_.faulty > 0 && !is_justified(from, next, promises))
    return out;
  if (!next.participant_set().contains(self_)) {
    end_with(out, {ec::excluded, "the other members went on without this peer"});
    return out;
  }
  enter(next, promises);
  (view_.participant_set() & member_set::first(members_)).for_each([&](std::size_t member) {
    lost_.erase(member); // the leader reaches it; if we cannot, we shall notice again
  });
  begin_view(out);
  return out;
}

// -- deciding ------------------------------------------------------------------------------------

round_protocol::actions round_protocol::on_prepared(std::size_t from, std::uint32_t number,
                                                    const digest& result) {
  actions out;
  if (ended_ || from >= members_ || number > view_number_max)
    return out;
  reports_.add(from, number, result);
  commit_if_all_prepared(out);
  return out;
}

void round_protocol::commit_if_all_prepared(actions& out) {
  auto needed = view_.participant_set();
  // This also holds after a promise to a higher number: all had prepared before they gave theirs,
  // so the candidate that asks for them learns that this view may have been committed.
  if (!prepared_ || !rules_.is_quorum(needed))
    return;
  if (!prepared_members().contains(needed)) {
    if (reported_members().contains(needed) && !std::exchange(compared_, true))
      out.push_back(compare_results{});
    return;
  }
  // A member that does not receive messages from all others, such as a client, waits for our commit
  // message, even if we were just asking for promises.
  bool notify = (leader() == self_ || coordinator() == self_) && needed.size() > 1;
  if (notify)
    out.push_back(send_commit{others(needed), stated_view()});
  apply(out, stated_view());
}

void round_protocol::apply(actions& out, const round_view& decided) {
  committed_ = true;
  ended_ = true;
  takeover_.reset();
  view_ = decided;
  result_ = decided.result;
  out.push_back(commit{view_});
}

void round_protocol::pass_on_decision(actions& out, std::size_t to) const {
  member_set only;
  only.insert(to);
  out.push_back(send_commit{only, stated_view()});
}

round_protocol::actions round_protocol::on_commit(std::size_t from, const round_view& decided) {
  actions out;
  if (ended_ || from >= members_)
    return out;
  // Sent by the view's leader, or passed on by a member that learned of the decision. Members that
  // wait for a message from us will get no other.
  if (coordinator() == self_)
    out.push_back(send_commit{others(member_set::first(members_)), decided});
  if (holds(decided))
    apply(out, decided);
  else
    end_with(out, {ec::excluded, "the round was decided without this peer's result"});
  return out;
}

round_protocol::actions round_protocol::on_abort(std::size_t from, ec reason) {
  actions out;
  if (ended_ || (from != leader() && from != coordinator()))
    return out;
  auto why = reason == ec::none ? ec::cancelled : reason;
  if (from != leader() && leader() != self_) // as in abort_all
    out.push_back(send_suspect{leader(), view_.number, self_, ec::cancelled});
  end_with(out, {why, "the round's leader cancelled it"});
  return out;
}

// -- a new leader --------------------------------------------------------------------------------

void round_protocol::start_takeover(actions& out, steady_time now) {
  auto number = term_above(promised_);
  if (number > view_number_max)
    return abort_all(out, ec::protocol_violation);
  promised_ = number;
  auto audience = others(member_set::first(members_));
  for (const auto& [member, reason] : lost_)
    if (!counts_though_lost(reason))
      audience.erase(member);
  takeover_ = takeover{number, audience, {}, now + options_.takeover_timeout};
  if (audience.empty())
    return finish_takeover(out);
  out.push_back(send_takeover{audience, number});
}

round_protocol::actions round_protocol::on_takeover(std::size_t from, std::uint32_t number) {
  actions out;
  if (from >= members_ || leader_of(number, members_) != from || number % views_per_term != 0
      || number > view_number_max)
    return out;
  if (number > promised_ && !ended_) {
    promised_ = number;
    takeover_.reset();
  }
  auto mine = promise();
  if (ended_ && !committed_)
    mine.knows_view = false; // the round failed here: we neither hold nor promise anything
  else if (ended_)
    mine.promised = number;
  out.push_back(send_promise{from, mine});
  return out;
}

round_protocol::actions round_protocol::on_promise(std::size_t from,
                                                   const takeover_promise& promise) {
  actions out;
  if (ended_ || promise.promised > view_number_max)
    return out;
  if (!takeover_ && promise.knows_view && promise.promised > promised_) {
    fall_behind(out, promise); // the answer to a view of ours that arrived too late
    return out;
  }
  if (!takeover_ || !takeover_->waiting.contains(from))
    return out;
  if (promise.knows_view && !promise.committed && promise.promised < takeover_->number)
    return out; // the answer to an earlier takeover of ours; this one's is still to come
  if (promise.knows_view && !promise.committed && promise.promised > takeover_->number) {
    fall_behind(out, promise);
    return out;
  }
  takeover_->waiting.erase(from);
  // No member promises a number after a view of that number.
  bool contradicts =
    rules_.faulty > 0 && !promise.committed && promise.view.number >= takeover_->number;
  if (promise.knows_view && !contradicts)
    takeover_->promises[from] = promise;
  if (takeover_->waiting.empty())
    finish_takeover(out);
  return out;
}

void round_protocol::fall_behind(actions& out, const takeover_promise& promise) {
  const auto& ahead = promise.view;
  // Otherwise a later term is about to begin with the members that answer its leader, us included.
  bool lasts = ahead.number / views_per_term == promise.promised / views_per_term;
  if (lasts && ahead.number > view_.number && !ahead.participant_set().contains(self_))
    return end_with(out, {ec::excluded, "the other members went on without this peer"});
  // Our own lead is over. The member that is ahead will send us the next view.
  promised_ = promise.promised;
  yields_to_ = promised_;
  takeover_.reset();
  successor_.reset();
}

round_protocol::actions round_protocol::on_time(steady_time now) {
  actions out;
  if (ended_)
    return out;
  end_doubts(out, now);
  if (ended_)
    return out;
  if (!takeover_) {
    // A takeover by another member that we promised to may last twice as long as one of ours.
    if (promised_ > view_.number) {
      if (!foreign_ || foreign_->number != promised_)
        foreign_ = foreign_takeover{promised_, now + 2 * options_.takeover_timeout};
      if (now >= foreign_->until) {
        lost_.emplace(coordinator(), ec::timeout);
        yields_to_.reset();
      }
    }
    if (!lead())
      recover(out, now);
    return out;
  }
  if (now < takeover_->until)
    return out;
  takeover_->waiting.for_each([&](std::size_t member) { lost_.emplace(member, ec::timeout); });
  finish_takeover(out);
  return out;
}

void round_protocol::finish_takeover(actions& out) {
  auto number = takeover_->number;
  auto promises = takeover_->promises;
  promises[self_] = promise();
  promises[self_].promised = number;

  member_set answered;
  const round_view* highest = nullptr;
  for (const auto& [member, s] : promises) {
    answered.insert(member);
    if (s.committed) {
      // Decided already. A member that did not learn of it holds the result, or fails.
      auto decided = s.view;
      out.push_back(send_commit{others(member_set::first(members_)), decided});
      if (holds(decided)) {
        apply(out, decided);
      } else {
        end_with(out, {ec::excluded, "the round was decided without this peer's result"});
      }
      return;
    }
    if (highest == nullptr || s.view.number > highest->number)
      highest = &s.view;
  }
  if (rules_.faulty > 0)
    return propose_what_follows(out, std::move(promises));
  if (!is_quorum(answered, members_))
    return abort_all(out, ec::lost_quorum);

  // Members that were left out receive the view, too, if they can be reached, and need not wait for
  // their deadline.
  auto everybody = member_set::first(members_);

  // May `highest` have been committed? Only if all its participants prepared it with one digest, so
  // only if all of those that answer report that. What is adopted may have been committed under an
  // earlier number; the members that prepared it there hold the result as well.
  bool all_prepared = true;
  std::map<digest, member_set> prepared; // by digest; more than one: a member lied
  for (const auto& [member, s] : promises) {
    if (s.prepared && s.view.contributors == highest->contributors)
      prepared[s.view.result].insert(member);
    if (highest->participant_set().contains(member)
        && !(s.prepared && s.view.number == highest->number))
      all_prepared = false;
  }
  // Honest members report what they prepared, and are more than half: of several digests, only one
  // that most report can have been committed.
  auto most =
    std::ranges::max_element(prepared, {}, [](const auto& each) { return each.second.size(); });
  bool unclear = !highest->adopted && all_prepared && prepared.size() > 1;
  auto result = highest->result;
  member_set known; // members that prepared this sum, with whatever digest
  for (const auto& [digest, members] : prepared)
    known = known | members;
  if (!highest->adopted && all_prepared && !prepared.empty()) {
    result = most->first;
    all_prepared = prepared.size() == 1
                   || (2 * most->second.size() > known.size() && is_quorum(most->second, members_));
  }
  auto holders = prepared[result];
  if (highest->adopted || (all_prepared && !holders.empty())) {
    if (!is_quorum(holders, members_))
      return abort_all(out, ec::lost_quorum);
    // If we do not hold it ourselves, we cannot lead; a member that holds it can.
    if (!holders.contains(self_)) {
      auto aside = give_up({ec::excluded, "the other members hold a result that this peer lacks"});
      out.insert(out.end(), aside.begin(), aside.end());
      return;
    }
    // Those that hold other bytes are sent the right ones, and must be able to check them.
    if (prepared.size() > 1 && !highest->adopted && options_.plain) {
      result = options_.plain();
      replaced_ = std::exchange(result_, result);
    }
    auto participants = highest->adopted ? holders : known;
    return propose(out, {number, highest->contributors, participants.bits(), true, result},
                   everybody);
  }
  // Members that do not answer may have committed one of several digests; not those that are at
  // fault for the difference.
  auto settled = answered;
  for (const auto& [member, reason] : lost_)
    if (reason == ec::unequal_results || reason == ec::wrong_sum
        || reason == ec::protocol_violation)
      settled.insert(member);
  if (unclear && !settled.contains(highest->participant_set()))
    return abort_all(out, ec::lost_quorum);
  auto contributors = answered & senders_;
  if (contributors.size() < options_.min_contributors || contributors.empty())
    return abort_all(out, ec::too_few_contributors);
  propose(out, {number, contributors.bits(), answered.bits(), false, {}}, everybody);
}

// -- views that follow from promises -------------------------------------------------------------

/// Whether the promise of a member that is lost for this reason is asked for: it can be reached,
/// and what it signs counts. Otherwise a reducer that sent different bytes to some could not be
/// told from a member that has committed what most others hold.
bool round_protocol::counts_though_lost(ec reason) const {
  return rules_.faulty > 0
         && (reason == ec::unequal_results || reason == ec::bad_weight
             || reason == ec::protocol_violation);
}

void round_protocol::propose_what_follows(actions& out, takeover_promises promises) {
  member_set participants;
  for (const auto& [member, said] : promises)
    if (!lost_.contains(member))
      participants.insert(member);
  auto next = next_view(takeover_->number, promises, participants, rules_);
  if (!next)
    return abort_all(out, next.error().code);
  enter(*next, promises);
  // Members that were left out receive the view, too, and need not wait for their deadline.
  out.push_back(send_propose{others(member_set::first(members_)), view_, std::move(promises)});
  begin_view(out);
}

bool round_protocol::is_justified(std::size_t from, const round_view& next,
                                  const takeover_promises& promises) const {
  auto follows = next_view(next.number, promises, next.participant_set(), rules_);
  return follows && *follows == next
         && (!options_.are_signed || options_.are_signed(from, promises));
}

} // namespace waggle
