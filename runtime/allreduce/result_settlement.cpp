#include "runtime/allreduce/result_settlement.hpp"

#include <algorithm>
#include <utility>

namespace waggle {

result_settlement::result_settlement(round_state& round) : round_(round), groups_(round.parts()) {
  if (has_pledges(round.plan()))
    audit_.emplace(round_, shares_,
                   sum_audit::events{[this] { prepare(); }, [this] { own_groups_.clear(); }});
}

bool result_settlement::is_keyed(const round_plan& plan, const round_config& config) {
  return has_pledges(plan)
         || (is_checked(plan) && plan.elements * sizeof(float) > config.keyless_bytes_max);
}

result_terms result_settlement::terms() const {
  return {round_.plan().id, round_.view().contributors, round_.weights.sum.value_or(0)};
}

part_values result_settlement::values() const {
  return [this](std::uint32_t part) {
    return std::span{round_.result.values(part).get(), round_.parts()[part].count};
  };
}

const std::vector<digest>& result_settlement::own_groups() {
  if (own_groups_.empty() && is_checked(round_.plan()))
    for (std::size_t group = 0; group < groups_.size(); ++group)
      own_groups_.push_back(group_digest(terms(), groups_[group], values()));
  return own_groups_;
}

member_set result_settlement::awaited() const {
  const auto& view = round_.view();
  auto only_leader = member_set::only(round_.protocol.leader());
  auto if_leading = [&](member_set all) {
    return round_.protocol.coordinator() == round_.self() ? all : only_leader;
  };
  if (repair_)
    return repair_->asked();
  if (repairing_)
    return only_leader;
  if (comparing_ && !judged_)
    return if_leading(unlisted());
  if (audited() && !digest_ && !has_shared())
    return if_leading(audit_->pledges().missing());
  if (has_shared() && !digest_ && !shares_.missing(view).empty())
    return if_leading(shares_.missing(view));
  if (audited() && !digest_)
    return if_leading(audit_->pledges().awaited() | audit_->unchecked());
  return round_.protocol.awaited();
}

void result_settlement::leave(const round_view& next) {
  const auto& view = round_.view();
  bool other_sum = next.contributors != view.contributors;
  // A key belongs to one view.
  bool other_key = keyed() && !next.adopted;
  if (other_sum || other_key || (!next.adopted && next.participants != view.participants)) {
    round_.weights.sum.reset();
    own_groups_.clear();
    digest_.reset();
  }
  comparing_ = repairing_ = false;
  repaired_ = {};
  if (audit_)
    audit_->forget();
}

void result_settlement::enter(std::uint32_t before, bool same_sum) {
  repair_.reset();
  if (audit_)
    audit_->enter();
  // In an adopted view nothing is judged: true once most members are known to hold its result.
  judged_ = round_.view().adopted && same_sum && lists_agree(before);
}

// -- preparing ------------------------------------------------------------------------------------

void result_settlement::collect() {
  if (round_.over || !round_.transfers.complete() || round_.protocol.ended() || digest_
      || is_settled())
    return;
  round_.watch.advanced(round_.now());
  auto at_fault = round_.weights.judge(round_.view().contributor_set());
  round_.refuse(at_fault, ec::bad_weight);
  if (!at_fault.empty() || round_.over)
    return;
  if (!keyed())
    return hold(plain());
  if (has_shared())
    return prepare();
  if (audited()
      && (!audit_->pledges().missing().empty() || !audit_->pledges().own_parts_agree()
          || round_.over))
    return;
  auto number = round_.view().number;
  shared_ = number;
  auto share = round_.port->secret(round_.plan().id, number);
  shares_.add(round_.self(), number, share);
  round_.send_to(round_.view().participant_set(),
                 wire::round_key_share{round_.plan().id, number,
                                       static_cast<std::uint32_t>(round_.self()), share,
                                       audited() ? audit_->pledges().all() : digest{}});
  prepare();
}

void result_settlement::on_share(std::size_t from, const wire::round_key_share& what) {
  auto members = round_.plan().members.size();
  auto leader = round_.protocol.leader();
  bool current = what.view == round_.view().number;
  if (what.member >= members || what.view > view_number_max)
    return round_.refuse(from, ec::protocol_violation);
  bool corrects = what.member != from && from == leader && current && audited()
                  && audit_->pledges().opens(what.member, what.share);
  if (corrects)
    shares_.correct(what.member, what.view, what.share);
  else if (!round_.may_say(from, what.member, what.view)) {
    // What a leader told us of an earlier view is late.
    if (from == leader_of(what.view, members) && audit_)
      return;
    return round_.refuse(from, ec::protocol_violation);
  }
  shares_.add(what.member, what.view, what.share);
  if (audit_)
    audit_->pledges().on_share(what.member, what.view, what.pledges);
  if (what.member == from && round_.is_client(from) && leader == round_.self() && current)
    round_.send_to(round_.clients_besides(from), what);
  prepare();
}

void result_settlement::on_pledge_digests(std::size_t from,
                                          const wire::round_pledge_digests& what) {
  if (!audit_)
    return round_.refuse(from, ec::protocol_violation);
  audit_->pledges().on_digests(from, what, has_shared());
}

void result_settlement::on_checked(std::size_t from, std::uint32_t view) {
  if (!audit_)
    return round_.refuse(from, ec::protocol_violation);
  if (audit_->on_checked(from, view))
    prepare();
}

/// Once all participants hold the result, its key is known.
void result_settlement::prepare() {
  const auto& view = round_.view();
  auto number = view.number;
  if (round_.over || digest_ || !round_.transfers.complete() || !has_shared()
      || !shares_.missing(view).empty() || (audit_ && !audit_->sums_are_right()) || round_.over
      || digest_ || view.number != number)
    return;
  hold(keyed_result_digest(terms(), result_key(shares_, view), groups_, values()));
}

void result_settlement::hold(const digest& result) {
  digest_ = result;
  round_.watch.advanced(round_.now());
  round_.perform(round_.protocol.on_result_complete(round_.view().number, result));
}

/// What we hold is the adopted result, which has another digest.
void result_settlement::rename(const digest& result) {
  digest_ = result;
  round_.watch.advanced(round_.now());
  round_.perform(round_.protocol.on_same_result(round_.view().number, result));
}

// -- comparing ------------------------------------------------------------------------------------

void result_settlement::compare() {
  if (round_.over || !digest_)
    return;
  const auto& view = round_.view();
  if (view.adopted || !is_checked(round_.plan())) { // whoever reports another digest lies
    auto right = view.adopted ? view.result : *digest_;
    auto number = view.number;
    view.participant_set().for_each([&](std::size_t member) {
      const auto* said = round_.protocol.reported(member);
      if (!round_.over && view.number == number && said && *said != right)
        round_.refuse(member, ec::protocol_violation);
    });
    return;
  }
  if (std::exchange(comparing_, true))
    return;
  round_.watch.advanced(round_.now());
  round_.watch.fault(round_.now());
  round_.port->log("compares results: members hold different ones");
  lists_.add(round_.self(), view.number, own_groups());
  round_.send_to(view.participant_set(),
                 wire::round_digests{round_.plan().id, view.number, own_groups()});
  judge();
}

void result_settlement::on_digests(std::size_t from, const wire::round_digests& what) {
  if (what.groups.size() != groups_.size() || what.view > view_number_max
      || !is_checked(round_.plan()))
    return round_.refuse(from, ec::protocol_violation);
  lists_.add(from, what.view, what.groups);
  const auto& view = round_.view();
  if (is_settled())
    return on_settled_digests(from, what);
  bool awaits_lists = view.adopted && !judged_ && digest_ && *digest_ != view.result;
  if (awaits_lists && what.view < view.number && lists_agree(what.view)) {
    judged_ = true;
    return ask_for_repair();
  }
  if (what.view != view.number || !view.participant_set().contains(from))
    return;
  if (view.adopted)
    return send_repair(from);
  // Hashing takes long: not because of one member that asks for it.
  bool differ = false;
  view.participant_set().for_each([&](std::size_t member) {
    const auto* said = round_.protocol.reported(member);
    differ = differ || (said && digest_ && *said != *digest_);
  });
  if (differ || lists_.members(view.participant_set(), view.number).size() > 1)
    compare();
  judge();
}

/// The participants whose lists are awaited.
member_set result_settlement::unlisted() const {
  auto missing = lists_.missing(round_.view());
  for (const auto& [member, reason] : round_.protocol.lost())
    missing.erase(member);
  return missing;
}

/// Whether the result of the adopted view is what its leader and more than half of its participants
/// listed when they compared their results in view `compared`. Otherwise whoever leads could put
/// any bytes in the place of the result. For a client, one more member than the leader is enough:
/// it is sent no lists by other clients.
bool result_settlement::lists_agree(std::uint32_t compared) const {
  auto participants = round_.view().participant_set();
  auto leader = leader_of(round_.view().number, round_.plan().members.size());
  auto most = round_.is_client(round_.self()) ? 2 : participants.size() / 2 + 1;
  return is_held_by(lists_, most, participants, leader, compared)
         && result_digest(terms(), lists_.of(leader, compared)) == round_.view().result;
}

void result_settlement::judge() {
  if (round_.over || !comparing_ || judged_)
    return;
  const auto& view = round_.view();
  if (!unlisted().empty())
    return;
  auto among = lists_.members(view.participant_set(), view.number);
  judged_ = true;
  member_set liars; // what they list is not what they reported
  if (!keyed())
    among.for_each([&](std::size_t member) {
      const auto* reported = round_.protocol.reported(member);
      if (reported && *reported != result_digest(terms(), lists_.of(member, view.number)))
        liars.insert(member);
    });
  among = among - liars;
  auto found = compare_results(lists_, view.number, among, round_.self(), [&](std::size_t group) {
    return groups_.reducer(group, round_.parts(), view);
  });
  round_.refuse(liars, ec::protocol_violation, " reported another result than it holds");
  round_.refuse(found.at_fault - liars, ec::unequal_results,
                " sent different results to different members");
  if (round_.over || !liars.empty() || !found.at_fault.empty())
    return;
  if (!found.we_hold_most && round_.protocol.rules().faulty == 0) {
    // Another member leads those that hold the same as most.
    if (round_.protocol.coordinator() == round_.self())
      round_.perform(
        round_.protocol.give_up({ec::unequal_results, "most members hold another result"}));
    return;
  }
  auto agreed = plain();
  if (auto next = round_.protocol.on_most_agree(agreed, round_.now()); !next.empty()) {
    if (round_.protocol.view().adopted)
      digest_ = agreed;
    round_.perform(next);
  }
}

// -- repairing ------------------------------------------------------------------------------------

void result_settlement::ask_for_repair() {
  const auto& view = round_.view();
  if (round_.over || !view.adopted || round_.protocol.view().number != view.number)
    return; // a later view has begun
  if (is_settled())
    return ask_holders();
  // The same result may have been adopted under its digest without a key.
  if (auto ours = plain(); ours == view.result && digest_ != ours)
    return rename(ours);
  // Whoever leads could put any bytes in the place of the result: only what most members listed
  // before is accepted. Some lists may still be on their way.
  if (!judged_)
    return;
  repairing_ = true;
  round_.watch.advanced(round_.now());
  round_.tell(round_.protocol.leader(),
              wire::round_digests{round_.plan().id, view.number, own_groups()});
}

void result_settlement::ask_holders() {
  const auto& view = round_.view();
  // We may hold the same bytes under another digest, or none yet.
  if (round_.transfers.complete() && round_.weights.sum && plain() == view.result)
    return digest_ ? rename(view.result) : hold(view.result);
  // Zeros for what we lack.
  std::vector<digest> ours(groups_.size());
  for (std::size_t group = 0; group < groups_.size() && round_.weights.sum; ++group) {
    const auto& parts = groups_[group];
    if (std::ranges::all_of(parts, [&](auto part) { return round_.transfers.has_result(part); }))
      ours[group] = group_digest(terms(), parts, values());
  }
  // One more than may lie, so that one of them sends what it says it holds. Clients have no links
  // with each other.
  member_set asked;
  auto members = round_.plan().members.size();
  for (std::size_t step = 1; step < members && asked.size() <= round_.protocol.rules().faulty;
       ++step) {
    auto member = (round_.self() + step) % members;
    bool reachable = !round_.is_client(round_.self()) || !round_.is_client(member);
    if (reachable && round_.protocol.holders().contains(member)
        && view.participant_set().contains(member))
      asked.insert(member);
  }
  digest_.reset();
  repair_.emplace(groups_, terms(), view.result, asked, ours);
  round_.watch.advanced(round_.now());
  round_.port->log("asks " + std::to_string(asked.size())
                   + " members for the result that they hold");
  round_.send_to(asked, wire::round_digests{round_.plan().id, view.number, std::move(ours)});
}

void result_settlement::send_repairs() {
  if (!is_settled())
    return;
  const auto& view = round_.view();
  lists_.members(view.participant_set(), view.number).for_each([&](std::size_t member) {
    if (member != round_.self())
      send_repair(member);
  });
}

/// A participant of the adopted view holds something else than we do.
void result_settlement::send_repair(std::size_t to) {
  const auto& view = round_.view();
  const auto* ours = round_.protocol.reported(round_.self());
  const auto* theirs = lists_.find(to, view.number);
  if (round_.over || (round_.protocol.leader() != round_.self() && !is_settled()) || ours == nullptr
      || *ours != view.result || repaired_.contains(to) || theirs == nullptr)
    return;
  repaired_.insert(to);
  std::size_t differ = 0;
  if (is_settled())
    round_.tell(to, wire::round_digests{round_.plan().id, view.number, own_groups()});
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if ((*theirs)[group] == own_groups()[group])
      continue;
    for (auto part : groups_[group]) {
      auto head = round_.header(part, wire::part_kind::repair);
      head.contributors = view.contributors;
      if (is_settled())
        head.weight = round_.weights.sum.value_or(0);
      round_.tell(to, head, round_.result.bytes(part));
      ++differ;
    }
  }
  round_.port->log("sends " + round_.name_of(to) + " " + std::to_string(differ)
                   + " parts again that differ from what most members hold");
}

/// The values are those that the sender holds, not encoded: decoding twice would not give the same.
void result_settlement::on_repair(std::size_t from, const inbound_event& event,
                                  const wire::part& head) {
  const auto& parts = round_.parts();
  const auto& view = round_.view();
  bool fits = head.index < parts.size() && head.offset == parts[head.index].offset
              && head.count == parts[head.index].count
              && event.body.size == head.count * sizeof(float);
  if (!fits || (!is_settled() && from != leader_of(head.view, round_.plan().members.size()))) {
    event.release();
    return round_.refuse(from, fits ? ec::protocol_violation : ec::wrong_shape);
  }
  bool wanted = head.view == view.number
                && (is_settled() ? repair_ && repair_->wants(from, head.index)
                                 : repairing_ && head.contributors == view.contributors);
  if (!wanted)
    return event.release(); // late
  auto memory = std::make_shared<float_vector>(head.count);
  bool finite = copy_finite(event.body.view(), *memory);
  event.release();
  if (!finite)
    return round_.refuse(from, ec::non_finite);
  round_.watch.advanced(round_.now());
  if (is_settled()) {
    if (!repair_->add_part(from, head.index, head.weight, std::move(memory)))
      return round_.refuse(from, ec::protocol_violation);
    return take_repaired();
  }
  round_.result.put(head.index, {memory, memory->data()});
  auto group = groups_.group_of(head.index);
  own_groups_[group] = group_digest(terms(), groups_[group], values());
  if (auto now = plain(); now == view.result) {
    repairing_ = false;
    hold(now);
  }
}

void result_settlement::on_settled_digests(std::size_t from, const wire::round_digests& what) {
  const auto& view = round_.view();
  if (what.view != view.number || !view.participant_set().contains(from))
    return;
  if (!repair_)
    return send_repair(from);
  if (!repair_->asked().contains(from))
    return;
  if (!repair_->add_list(from, what.groups))
    return round_.refuse(from, ec::protocol_violation);
  take_repaired();
}

/// Applies the groups of parts that are checked.
void result_settlement::take_repaired() {
  for (auto& [part, values] : repair_->take_checked())
    round_.result.put(part, {values, values->data()});
  if (!repair_->done())
    return;
  if (repair_->weight_sum())
    round_.weights.sum = repair_->weight_sum();
  own_groups_ = repair_->groups();
  auto result = round_.view().result;
  repair_.reset();
  hold(result);
}

} // namespace waggle
