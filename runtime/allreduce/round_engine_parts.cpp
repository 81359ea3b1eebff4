// The round_engine sends our parts, takes those of other members, and reduces those that we own.

#include <algorithm>

#include "runtime/allreduce/round_engine.hpp"

namespace waggle {

// -- sending --------------------------------------------------------------------------------------

/// Determines the work of the current view, and reduces the parts that are complete.
void round_engine::work() {
  const auto& view = round_.view();
  for (auto index : round_.transfers.owned())
    round_.own.want(index, view.contributor_set());
  auto outgoing = round_.transfers.take_outgoing();
  outgoing_.insert(outgoing_.end(), outgoing.begin(), outgoing.end());
  for (auto index : round_.transfers.owned())
    reduce_if_complete(index);
}

void round_engine::ship() {
  for (;;) {
    std::optional<transfer_state::outgoing_part> next;
    {
      std::lock_guard guard{mutex_};
      withdraw_if_failed();
      next = next_outgoing();
    }
    if (!next)
      return;
    auto bytes = round_.contribution(next->part);
    auto pledged = digest_to_pledge(bytes);
    std::lock_guard guard{mutex_};
    send_part(*next, std::move(bytes), pledged);
  }
}

/// Some of our parts may be summed by now: whoever has contributed nothing that can be used leaves
/// the round, and all parts are summed again without it.
void round_engine::withdraw_if_failed() {
  if (!round_.over && round_.request.fills && round_.request.fills->failed())
    perform(round_.protocol.give_up({ec::non_finite, "our vector cannot be used"}));
}

/// Of a part that we contribute; zero if sums are not checked. Takes long.
digest round_engine::digest_to_pledge(const std::optional<payload>& bytes) const {
  return settlement_.audit() != nullptr && bytes
           ? contribution_digest(round_.request.weight, bytes->view())
           : digest{};
}

/// One whose values are there. Where a backward pass writes them, these are the last ones first.
std::optional<transfer_state::outgoing_part> round_engine::next_outgoing() {
  auto found = std::find_if(outgoing_.begin(), outgoing_.end(),
                            [this](const auto& each) { return round_.is_filled(each.part); });
  if (found == outgoing_.end())
    return std::nullopt;
  auto next = *found;
  outgoing_.erase(found);
  return next;
}

/// Sends after a view change, with the lock held: few parts change their owner, unless the view
/// changes while `ship` is still running, and other members wait for these parts.
void round_engine::ship_all() {
  while (auto next = next_outgoing()) {
    auto bytes = round_.contribution(next->part);
    auto pledged = digest_to_pledge(bytes);
    send_part(*next, std::move(bytes), pledged);
  }
}

/// @param bytes nothing: they could not be encoded.
void round_engine::send_part(const transfer_state::outgoing_part& outgoing_part,
                             std::optional<payload> bytes, const digest& pledged) {
  if (round_.over)
    return;
  if (!bytes)
    return perform(round_.protocol.give_up({ec::non_finite, "our vector cannot be encoded"}));
  if (auto* audit = settlement_.audit())
    audit->pledges().contribute(outgoing_part.part, pledged);
  if (sends_contributions_back(round_.parts()[outgoing_part.part].codec))
    round_.contributed.insert_or_assign(outgoing_part.part, *bytes);
  if (outgoing_part.owner == round_.self()) {
    auto now = round_.now();
    round_.transfers.contribution(outgoing_part.part, round_.self(), round_.view().number, now);
    round_.marks.contribution(round_.self(), now, 0);
    return add(outgoing_part.part, round_.self(), round_.request.weight, *std::move(bytes));
  }
  auto head = round_.header(outgoing_part.part, wire::part_kind::contribution);
  head.weight = round_.request.weight;
  round_.marks.contribution(round_.self(), round_.now(), 0);
  round_.tell(outgoing_part.owner, head, *std::move(bytes));
}

// -- incoming parts -------------------------------------------------------------------------------

std::shared_ptr<std::byte> round_engine::destination(const peer_id& from, const wire::part& head,
                                                     std::size_t bytes) {
  std::lock_guard guard{mutex_};
  auto member = members_.find(from);
  if (member != members_.end())
    heard_.insert(member->second);
  if (round_.over || member == members_.end() || head.kind != wire::part_kind::result
      || !round_.fits(head, bytes) || !travels_as_floats(round_.parts()[head.index].codec))
    return nullptr;
  if (!round_.transfers.awaits_result(head.index, member->second, head.contributors))
    return nullptr;
  return round_.result.lend(head.index);
}

/// Only single-pass reads may use shared memory: otherwise a peer could change bytes between
/// validation and use (TOCTOU).
bool round_engine::zero_copy_ok(const wire::part& head) const {
  if (head.index >= round_.parts().size())
    return false;
  if (settlement_.audit() != nullptr && head.kind != wire::part_kind::result)
    return false; // we answer for these bytes until the round ends
  auto codec = round_.parts()[head.index].codec;
  return head.kind == wire::part_kind::result ? travels_as_floats(codec)
                                              : part_reducer::reads_once(codec, plan().reduce_by);
}

void round_engine::handle(const inbound_event& event) {
  auto member = members_.find(event.from.id);
  if (member == members_.end()) {
    round_.port->count_refused(ec::protocol_violation);
    return event.release();
  }
  auto from = member->second;
  auto* audit = settlement_.audit();
  if (const auto* part = std::get_if<wire::part>(&event.what)) {
    if (round_.over)
      return event.release();
    return on_part(from, event, *part);
  }
  if (const auto* pledge = std::get_if<wire::round_pledge>(&event.what); pledge && !round_.over) {
    if (audit == nullptr) {
      event.release();
      round_.refuse(from, ec::protocol_violation);
    } else if (audit->pledges().on_pledge(from, event, *pledge)) {
      settlement_.collect();
    }
    return;
  }
  event.release();
  on_message(from, event.what);
}

void round_engine::on_part(std::size_t from, const inbound_event& event, const wire::part& head) {
  heard_.insert(from);
  auto* audit = settlement_.audit();
  bool evidence = head.kind == wire::part_kind::evidence;
  if (head.kind == wire::part_kind::repair)
    return settlement_.on_repair(from, event, head);
  if (evidence && audit != nullptr)
    return audit->on_evidence(from, event, head);
  if (evidence || !round_.fits(head, event.body.size)) {
    event.release();
    return round_.refuse(from, ec::wrong_shape);
  }
  bool in_place = round_.result.is_place(head.index, event.body.data.get());
  if (settlement_.is_settled() && head.kind == wire::part_kind::result
      && head.view <= round_.view().number) {
    if (in_place)
      round_.result.returned(head.index);
    return event.release();
  }
  auto now = round_.now();
  auto said = head.kind == wire::part_kind::contribution
                ? round_.transfers.contribution(head.index, from, head.view, now)
                : round_.transfers.result(head.index, from, head.contributors, head.view, now);
  if (said == transfer_state::arrival::later) {
    // No correct member sends more than one contribution and one result of each part, for a view or
    // two.
    if (round_.may_park(from, 4 * round_.parts().size())) {
      round_.parked.push_back(event);
    } else {
      event.release();
      round_.refuse(from, ec::overloaded);
    }
    return;
  }
  if (in_place)
    round_.result.returned(head.index);
  if (said == transfer_state::arrival::accept)
    accept(from, event.body, head, now);
  event.release();
  if (said == transfer_state::arrival::refuse)
    round_.refuse(from, ec::protocol_violation);
}

void round_engine::accept(std::size_t from, const payload& body, const wire::part& head,
                          steady_time now) {
  round_.port->count_part();
  if (head.kind == wire::part_kind::contribution) {
    round_.marks.contribution(from, now, body.size);
    return add(head.index, from, head.weight, body);
  }
  round_.marks.result(from, now, body.size);
  std::shared_ptr<const float> values;
  status sound = done{};
  if (round_.result.is_place(head.index, body.data.get())) { // see `destination`
    if (auto read = round_.result.read_in_place(head.index); all_finite({read.get(), head.count}))
      values = std::move(read);
    else
      sound = ec::non_finite;
  } else {
    auto memory = round_.result.memory_for(head.index);
    sound = round_.read_result(head, body, {memory.get(), head.count});
    values = std::move(memory);
    if (auto* audit = settlement_.audit(); sound && audit != nullptr)
      audit->relayed(from, head, body);
  }
  // A reducer reports the weights that it summed with.
  if (sound
      && !round_.weights.report(from, round_.view().contributor_set(), head.weight, head.weights))
    sound = ec::bad_weight;
  if (!sound) {
    round_.transfers.forget_result(head.index);
    return round_.refuse(from, sound.error().code);
  }
  round_.result.put(head.index, std::move(values));
  settlement_.collect();
}

// -- parts that we reduce -------------------------------------------------------------------------

void round_engine::add(std::uint32_t index, std::size_t member, double weight, payload values) {
  // A member has one weight in a round.
  if (round_.weights.told(member).value_or(weight) != weight)
    return round_.refuse(member, ec::bad_weight);
  auto* audit = settlement_.audit();
  auto contribution = audit != nullptr ? contribution_digest(weight, values.view()) : digest{};
  auto added = round_.own.add(index, member, weight, std::move(values));
  if (added) {
    if (audit != nullptr)
      audit->pledges().received(index, member, contribution);
    round_.weights.tell(member, weight);
    return reduce_if_complete(index);
  }
  if (member == round_.self()) // checked before the round began
    return perform(
      round_.protocol.give_up({added.error().code, "our own contribution was refused"}));
  round_.refuse(member, added.error().code);
}

void round_engine::reduce_if_complete(std::uint32_t index) {
  if (round_.over || settlement_.is_settled())
    return;
  auto due = round_.own.due(index);
  if (!due)
    return;
  const auto& part = round_.parts()[index];
  const auto& contributions = round_.own.reducer(index);
  auto out = round_.result.memory_for_sum(index);
  if (part.count >= round_.config.offload_elements
      && round_.port->reduce({index, part.count, *due, contributions, out}))
    return;
  take_sum({index, *due, contributions.reduce(*due, {out.get(), part.count}), out});
}

void round_engine::take_sum(const reduced_part& sum) {
  if (round_.over || settlement_.is_settled())
    return;
  const auto& [index, over, outcome, out] = sum;
  if (!outcome.excluded.empty()) {
    for (const auto& found : outcome.excluded) {
      round_.port->log("leaves out " + round_.name_of(found.member) + ": " + describe(found));
      if (found.member == round_.self())
        perform(round_.protocol.give_up({found.reason, "our own contribution was refused"}));
      else
        round_.refuse(found.member, found.reason);
    }
    return;
  }
  const auto& view = round_.view();
  if (over != view.contributor_set())
    return; // of a previous view
  auto now = round_.now();
  auto said = round_.transfers.result(index, round_.self(), over.bits(), view.number, now);
  // We may have received this result from another reducer that was lost since; the other members
  // may not have.
  bool had = said == transfer_state::arrival::ignore;
  if ((said != transfer_state::arrival::accept && !had)
      || !round_.own.mark_sent(index, over.bits()))
    return;
  round_.marks.result(round_.self(), now, 0);
  if (!had)
    round_.result.put(index, out);
  auto bytes = round_.encode_sum(index, round_.own.reducer(index), over, out);
  auto head = round_.header(index, wire::part_kind::result);
  head.weight = outcome.weight_sum;
  head.contributors = over.bits();
  head.weights = round_.own.reducer(index).weights(over);
  // Each reducer begins with the next member, so that the reducers do not all send to the same one
  // first.
  std::vector<std::size_t> in_turn;
  auto members = plan().members.size();
  for (std::size_t step = 1; step < members; ++step)
    if (auto member = (round_.self() + step) % members; view.participant_set().contains(member))
      in_turn.push_back(member);
  round_.send_to(in_turn, head, bytes);
  round_.weights.report_own(head.weights);
  settlement_.collect();
}

} // namespace waggle
