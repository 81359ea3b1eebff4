#pragma once

#include <cstdint>
#include <map>

#include "runtime/allreduce/round_state.hpp"
#include "runtime/averaging/round_proof.hpp"

namespace waggle {

/// What the members of a round report about decisions is signed, and checked where others cannot
/// receive it themselves:
///
///   we prepare ─ signature ─► participants
///   a participant prepared ─► its signature is kept; checked if it is a client and not the only one
///   commit, "I have committed" ─► proof ─ all participants signed ─► round_protocol
///                                       └ not so ─► not believed
///
/// If members may lie, so is what a change of the view follows from:
///
///   takeover ─► our promise, signed ─► leader ─ signed? ─► round_protocol
///   proposal ─► round_protocol ─ does it follow from the promises that it shows? ─ signed? ─► enter
///
/// Nothing is signed in a round whose members believe each other (why_unchecked).
///
/// Not thread-safe.
class decision_proofs {
public:
  /// `round` must outlive this.
  explicit decision_proofs(round_state& round) : round_(round) {}

  /// Signs the message of an action of the protocol, and adds the proof of its content.
  void sign(const round_protocol::action& action, wire::event& message);
  [[nodiscard]] round_proof::signatures of(const round_view& decided) const {
    return kept_.of(decided);
  }

  void on_prepared(std::size_t from, const wire::round_prepared& what);
  void on_commit(std::size_t from, const wire::round_commit& what);
  void on_promise(std::size_t from, wire::round_promise what);
  /// Whether the promises that `leader` shows are signed by those that gave them.
  [[nodiscard]] bool are_signed(std::size_t leader, const takeover_promises& promises);
  /// Another view has begun: takes the reports of members that entered it before we did.
  void take_early();

private:
  [[nodiscard]] bool is_proven(std::size_t from, const round_view& decided,
                               const round_proof::signatures& proof);
  [[nodiscard]] bool is_heard_by_all(std::size_t member) const;
  [[nodiscard]] bool verify(std::size_t by, std::string_view what, const signature& its) const {
    return round_.port->verify(round_.plan().members[by].peer, what, its);
  }
  void pass_on(std::size_t from, const wire::event& what);

  round_state& round_;
  round_proof kept_;
  std::map<std::size_t, wire::round_prepared> early_; // the last one of each member
  member_set unproven_;  // members that sent what they could not prove: checking takes long
  member_set missigned_; // members whose reports are not signed by them
};

} // namespace waggle
