// What members say about decisions is signed, and checked:
//
//   we prepare ─ signature ─► participants
//   a participant prepared ─► its signature is kept; checked if it is a client and not the only one
//   commit, "I have committed" ─► proof ─ all participants signed ─► round_protocol
//                                       └ not so ─► not believed

#include <utility>

#include "runtime/allreduce/round_engine.hpp"
#include "runtime/allreduce/round_messages.hpp"

namespace waggle {

round_proof::signatures round_engine::proof_of(const round_view& decided) const {
  return proof_.of(decided);
}

bool round_engine::is_proven(std::size_t from, const round_view& decided,
                             const round_proof::signatures& proof) {
  if (unproven_.contains(from))
    return false;
  member_set heard;
  if (protocol_.view()
      == round_view{decided.number, decided.contributors, decided.participants, decided.adopted,
                    protocol_.view().result})
    decided.participant_set().for_each([&](std::size_t member) {
      if (protocol_.reported(member) == decided.result)
        heard.insert(member);
    });
  bool proven = proves(plan(), decided, proof, heard,
                       [this](const peer_record& by, std::string_view statement,
                              const signature& its) { return port_->verify(by, statement, its); });
  if (proven) {
    proof_.keep(decided, proof);
    return true;
  }
  unproven_.insert(from);
  port_->count_refused(ec::bad_signature);
  port_->log("does not believe " + short_name(plan().members[from].peer.id)
             + ", which says without a proof that the round is decided");
  return false;
}

void round_engine::sign(const round_protocol::action& action, wire::event& message) {
  if (const auto* ours = std::get_if<round_protocol::send_prepared>(&action)) {
    auto& prepared = std::get<wire::round_prepared>(message);
    prepared.by = port_->sign(prepared_statement(plan().id, ours->view));
    proof_.add(request_.self_index, ours->view, prepared.by);
  } else if (auto* decided = std::get_if<wire::round_commit>(&message)) {
    decided->proof = proof_of(decided->view);
  } else if (auto* promise = std::get_if<wire::round_promise>(&message);
             promise != nullptr && promise->committed) {
    promise->proof = proof_of(promise->view);
  }
}

/// Others need the proof of what this member reports, because they cannot hear it: clients have no
/// links with each other. For all other members, checking signatures in every round would cost more
/// than it gives: a bad one delays only those whose link to the liar is broken.
bool round_engine::is_heard_by_all(std::size_t member) const {
  const auto& members = plan().members;
  if (members[member].mode != member_mode::client)
    return true;
  bool by_all = true;
  transfers_.view().participant_set().for_each([&](std::size_t other) {
    by_all = by_all && (other == member || members[other].mode != member_mode::client);
  });
  return by_all;
}

void round_engine::on_prepared(std::size_t from, const wire::round_prepared& what) {
  if (what.view > view_number_max)
    return;
  auto prepared = protocol_.view();
  auto number = std::exchange(prepared.number, what.view);
  prepared.result = what.result;
  if (!is_heard_by_all(from)) {
    if (what.view > number)
      early_.insert_or_assign(from, what);
    if (what.view != number || missigned_.contains(from) || protocol_.reported(from))
      return; // its first report counts, and is the only one that costs time
    if (!port_->verify(plan().members[from].peer, prepared_statement(plan().id, prepared),
                       what.by)) {
      missigned_.insert(from);
      return refuse(from, ec::bad_signature);
    }
  }
  proof_.add(from, prepared, what.by);
  perform(receive(protocol_, from, what, now_()));
}

/// Reports of members that entered the current view before we did.
void round_engine::take_early_reports() {
  for (const auto& [from, what] : std::exchange(early_, {}))
    if (!reported_)
      on_prepared(from, what);
}

void round_engine::on_commit(std::size_t from, const wire::round_commit& what) {
  if (is_proven(from, what.view, what.proof))
    perform(receive(protocol_, from, what, now_()));
}

/// A member that cannot prove that it committed has prepared, as far as we know.
void round_engine::on_promise(std::size_t from, wire::round_promise what) {
  what.committed = what.committed && is_proven(from, what.view, what.proof);
  perform(receive(protocol_, from, what, now_()));
}

} // namespace waggle
