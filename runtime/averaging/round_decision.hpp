#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/crypto/identity.hpp"

namespace waggle {

/// True if `participants` may decide a round of `members` members none of which lies: more than
/// half, or exactly half with member 0 among them. Any two such sets have a member in common.
bool is_quorum(member_set participants, std::size_t members);

struct round_rules {
  explicit round_rules(const round_plan& plan);

  std::size_t members = 0;
  /// Members that may lie, the leader included; 0: nothing is promised if the leader lies, because
  /// the plan assumes no liars or has not more than three times as many members.
  std::size_t faulty = 0;
  member_set senders; // all but auxiliaries
  std::uint32_t min_contributors = 1;

  /// Any two quorums have a member in common that does not lie: more than (members + faulty) / 2.
  /// If `faulty` is 0, see the function above.
  [[nodiscard]] bool is_quorum(member_set participants) const;
};

/// A member's answer to a takeover, see `round_protocol::on_takeover`.
struct takeover_promise {
  std::uint32_t promised = 0; // the takeover's number, or a higher one that was promised before
  bool knows_view = false;    // false: this member does not know the round, or no longer
  round_view view;            // with the digest of the result, if it is prepared
  bool prepared = false;      // the member holds every part of `view`
  bool committed = false;
  /// The digest without a key of the result that the member has prepared, or that its view adopted;
  /// zero: none. Of a member that has committed it does not matter.
  digest value{};
  signature by{}; // of promise_statement; not needed if nobody is assumed to lie

  friend bool operator==(const takeover_promise&, const takeover_promise&) = default;
};

using takeover_promises = std::map<std::size_t, takeover_promise>;

/// What a member signs when it gives a promise. Whether it has committed is not part of that: the
/// proof of a decision has signatures of its own (round_proof).
std::string promise_statement(const round_id& round, const takeover_promise& promise);

/// The view `number` that follows from the promises of those that answered its leader, if members
/// may lie (README.md: "A leader that lies").
///
/// @param participants of the view: a quorum of those that answered. The leader may leave out
///   others, such as a reducer that was found to lie; what they promised counts all the same.
/// Fails with ec::lost_quorum or ec::too_few_contributors, and with ec::protocol_violation if the
/// promises are not about this number. Signatures are not checked here.
/// REQUIRES: rules.faulty > 0.
result<round_view> next_view(std::uint32_t number, const takeover_promises& promises,
                             member_set participants, const round_rules& rules);

} // namespace waggle
