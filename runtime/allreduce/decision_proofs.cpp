#include "runtime/allreduce/decision_proofs.hpp"

#include <utility>

#include "runtime/allreduce/round_messages.hpp"

namespace waggle {

void decision_proofs::sign(const round_protocol::action& action, wire::event& message) {
  const auto& plan = round_.plan();
  if (!is_checked(plan))
    return;
  if (const auto* ours = std::get_if<round_protocol::send_prepared>(&action)) {
    auto& prepared = std::get<wire::round_prepared>(message);
    prepared.by = round_.port->sign(prepared_statement(plan.id, ours->view));
    kept_.add(round_.self(), ours->view, prepared.by);
  } else if (auto* decided = std::get_if<wire::round_commit>(&message)) {
    decided->proof = of(decided->view);
  } else if (const auto* answer = std::get_if<round_protocol::send_promise>(&action)) {
    auto& promise = std::get<wire::round_promise>(message);
    bool to_its_leader = leader_of(promise.promised, plan.members.size()) == answer->to;
    if (promise.committed)
      promise.proof = of(promise.view);
    else if (round_.protocol.rules().faulty > 0 && promise.knows_view && to_its_leader)
      promise.by = round_.port->sign(promise_statement(plan.id, answer->promise));
  } else if (auto* proposal = std::get_if<wire::round_propose>(&message)) {
    auto own = proposal->promises.find(round_.self());
    if (own != proposal->promises.end())
      own->second.by = round_.port->sign(promise_statement(plan.id, own->second));
  }
}

bool decision_proofs::is_proven(std::size_t from, const round_view& decided,
                                const round_proof::signatures& proof) {
  if (unproven_.contains(from))
    return false;
  const auto& current = round_.protocol.view();
  member_set heard;
  if (current
      == round_view{decided.number, decided.contributors, decided.participants, decided.adopted,
                    current.result})
    decided.participant_set().for_each([&](std::size_t member) {
      if (const auto* said = round_.protocol.reported(member); said && *said == decided.result)
        heard.insert(member);
    });
  bool proven =
    proves(round_.plan(), decided, proof, heard,
           [this](const peer_record& by, std::string_view statement, const signature& its) {
             return round_.port->verify(by, statement, its);
           });
  if (proven) {
    if (is_checked(round_.plan())) // otherwise anything proves it, any number of times
      kept_.keep(decided, proof);
    return true;
  }
  unproven_.insert(from);
  round_.port->count_refused(ec::bad_signature);
  round_.port->log("does not believe " + round_.name_of(from)
                   + ", which says without a proof that the round is decided");
  return false;
}

/// Others need the proof of what this member reports, because they cannot hear it: clients have no
/// links with each other. For all other members, checking signatures in every round would cost more
/// than it gives: a bad one delays only those whose link to the liar is broken.
bool decision_proofs::is_heard_by_all(std::size_t member) const {
  if (!round_.is_client(member) || !is_checked(round_.plan()))
    return true;
  bool by_all = true;
  round_.view().participant_set().for_each(
    [&](std::size_t other) { by_all = by_all && (other == member || !round_.is_client(other)); });
  return by_all;
}

void decision_proofs::pass_on(std::size_t from, const wire::event& what) {
  round_.perform(receive(round_.protocol, from, what, round_.now()));
}

void decision_proofs::on_prepared(std::size_t from, const wire::round_prepared& what) {
  if (what.view > view_number_max)
    return;
  auto prepared = round_.protocol.view();
  auto number = std::exchange(prepared.number, what.view);
  prepared.result = what.result;
  if (!is_heard_by_all(from)) {
    if (what.view > number)
      early_.insert_or_assign(from, what);
    if (what.view != number || missigned_.contains(from)
        || round_.protocol.reported(from) != nullptr)
      return; // its first report counts, and is the only one that costs time
    if (!verify(from, prepared_statement(round_.plan().id, prepared), what.by)) {
      missigned_.insert(from);
      return round_.refuse(from, ec::bad_signature);
    }
  }
  kept_.add(from, prepared, what.by);
  round_.marks.confirmed(from, round_.now());
  pass_on(from, what);
}

void decision_proofs::take_early() {
  for (const auto& [from, what] : std::exchange(early_, {}))
    if (!round_.over)
      on_prepared(from, what);
}

void decision_proofs::on_commit(std::size_t from, const wire::round_commit& what) {
  if (is_proven(from, what.view, what.proof))
    pass_on(from, what);
}

/// A member that cannot prove that it committed has prepared, as far as we know. If members may lie
/// it has said nothing, unless that is signed.
void decision_proofs::on_promise(std::size_t from, wire::round_promise what) {
  bool claims_commit =
    std::exchange(what.committed, what.committed && is_proven(from, what.view, what.proof));
  if (!what.committed && what.knows_view && round_.protocol.awaits_promise(from, what.promised)
      && !verify(from, promise_statement(round_.plan().id, what), what.by)) {
    if (!claims_commit)
      return round_.refuse(from, ec::bad_signature);
    what.knows_view = false;
  }
  pass_on(from, what);
}

bool decision_proofs::are_signed(std::size_t leader, const takeover_promises& promises) {
  if (unproven_.contains(leader))
    return false;
  for (const auto& [member, said] : promises) {
    if (verify(member, promise_statement(round_.plan().id, said), said.by))
      continue;
    unproven_.insert(leader); // checking takes long
    round_.port->count_refused(ec::bad_signature);
    round_.port->log("does not follow " + round_.name_of(leader)
                     + ", which shows a promise that nobody gave");
    return false;
  }
  return true;
}

} // namespace waggle
