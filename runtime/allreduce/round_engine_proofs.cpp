// What members say about decisions is signed, and checked:
//
//   we prepare ─ signature ─► participants
//   a participant prepared ─► its signature is kept; checked if it is a client and not the only one
//   commit, "I have committed" ─► proof ─ all participants signed ─► round_protocol
//                                       └ not so ─► not believed
//
// If members may lie, so is what a change of the view follows from:
//
//   takeover ─► our promise, signed ─► leader ─ signed? ─► round_protocol
//   proposal ─► round_protocol ─ does it follow from the promises that it shows? ─ signed? ─► enter
//   the view adopts what we lack ─► ask_holders ─► their digests, their bytes ─ checked ─► prepared

#include <algorithm>
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
  } else if (const auto* answer = std::get_if<round_protocol::send_promise>(&action)) {
    auto& promise = std::get<wire::round_promise>(message);
    bool to_its_leader = leader_of(promise.promised, plan().members.size()) == answer->to;
    if (promise.committed)
      promise.proof = proof_of(promise.view);
    else if (protocol_.rules().faulty > 0 && promise.knows_view && to_its_leader)
      promise.by = port_->sign(promise_statement(plan().id, answer->promise));
  } else if (auto* proposal = std::get_if<wire::round_propose>(&message)) {
    auto own = proposal->promises.find(request_.self_index);
    if (own != proposal->promises.end())
      own->second.by = port_->sign(promise_statement(plan().id, own->second));
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

/// A member that cannot prove that it committed has prepared, as far as we know. If members may lie
/// it has said nothing, unless that is signed.
void round_engine::on_promise(std::size_t from, wire::round_promise what) {
  bool claims_commit =
    std::exchange(what.committed, what.committed && is_proven(from, what.view, what.proof));
  if (!what.committed && what.knows_view && protocol_.awaits_promise(from, what.promised)
      && !port_->verify(plan().members[from].peer, promise_statement(plan().id, promise_in(what)),
                        what.by)) {
    if (!claims_commit)
      return refuse(from, ec::bad_signature);
    what.knows_view = false;
  }
  perform(receive(protocol_, from, what, now_()));
}

bool round_engine::are_signed(std::size_t leader, const takeover_promises& promises) {
  if (unproven_.contains(leader))
    return false;
  for (const auto& [member, said] : promises) {
    if (port_->verify(plan().members[member].peer, promise_statement(plan().id, said), said.by))
      continue;
    unproven_.insert(leader); // checking takes long
    port_->count_refused(ec::bad_signature);
    port_->log("does not follow " + short_name(plan().members[leader].peer.id)
               + ", which shows a promise that nobody gave");
    return false;
  }
  return true;
}

// -- adopted results -----------------------------------------------------------------------------

/// True if the result of the current view was adopted because of what members signed: nothing is
/// summed any more, and who lacks the result is sent it by those that hold it.
bool round_engine::is_settled() const {
  return protocol_.rules().faulty > 0 && transfers_.view().adopted;
}

void round_engine::ask_holders() {
  const auto& view = transfers_.view();
  // We may hold the same bytes under another digest, or none yet.
  if (transfers_.complete() && weight_sum_ && result_digest(terms(), own_groups()) == view.result) {
    bool renamed = digest_.has_value();
    digest_ = view.result;
    watch_.advanced(now_());
    return perform(renamed ? protocol_.on_same_result(view.number, view.result)
                           : protocol_.on_result_complete(view.number, view.result));
  }
  // Zeros for what we lack.
  std::vector<digest> ours(groups_.size());
  for (std::size_t group = 0; group < groups_.size() && weight_sum_; ++group) {
    const auto& parts = groups_[group];
    if (std::all_of(parts.begin(), parts.end(),
                    [&](auto part) { return transfers_.has_result(part); }))
      ours[group] = group_digest(terms(), parts, values());
  }
  // One more than may lie, so that one of them sends what it says it holds. Clients have no links
  // with each other.
  member_set asked;
  const auto& members = plan().members;
  bool client = members[request_.self_index].mode == member_mode::client;
  for (std::size_t step = 1; step < members.size() && asked.size() <= protocol_.rules().faulty;
       ++step) {
    auto member = (request_.self_index + step) % members.size();
    bool reachable = !client || members[member].mode != member_mode::client;
    if (reachable && protocol_.holders().contains(member)
        && view.participant_set().contains(member))
      asked.insert(member);
  }
  digest_.reset();
  repair_.emplace(groups_, terms(), view.result, asked, ours);
  watch_.advanced(now_());
  port_->log("asks " + std::to_string(asked.size()) + " members for the result that they hold");
  send_to(asked, wire::round_digests{plan().id, view.number, std::move(ours)});
}

/// Those that asked before we held the result ourselves.
void round_engine::send_repairs() {
  const auto& view = transfers_.view();
  if (!is_settled())
    return;
  view.participant_set().for_each([&](std::size_t member) {
    if (member != request_.self_index && lists_.has(member, view.number))
      send_repair(member);
  });
}

void round_engine::on_settled_digests(std::size_t from, const wire::round_digests& what) {
  const auto& view = transfers_.view();
  if (what.view != view.number || !view.participant_set().contains(from))
    return;
  if (!repair_)
    return send_repair(from);
  if (!repair_->asked().contains(from))
    return;
  if (!repair_->add_list(from, what.groups))
    return refuse(from, ec::protocol_violation);
  take_repaired();
}

void round_engine::on_settled_part(std::size_t from, const inbound_event& event,
                                   const wire::part& head) {
  const auto& view = transfers_.view();
  if (!repair_ || head.view != view.number || !repair_->wants(from, head.index))
    return event.release(); // late
  bytes_received_ += event.body.size;
  auto memory = std::make_shared<float_vector>(head.count);
  bool finite = copy_finite(event.body.view(), *memory);
  event.release();
  if (!finite)
    return refuse(from, ec::non_finite);
  watch_.advanced(now_());
  if (!repair_->add_part(from, head.index, head.weight, std::move(memory)))
    return refuse(from, ec::protocol_violation);
  take_repaired();
}

/// Applies the groups of parts that are checked.
void round_engine::take_repaired() {
  for (auto& [part, values] : repair_->take_checked())
    result_.put(part, {values, values->data()});
  if (!repair_->done())
    return;
  if (repair_->weight_sum())
    weight_sum_ = repair_->weight_sum();
  own_groups_ = repair_->groups();
  auto result = transfers_.view().result;
  repair_.reset();
  hold(result);
}

} // namespace waggle
