#pragma once

#include <optional>
#include <string_view>

#include "runtime/averaging/round_plan.hpp"
#include "runtime/averaging/round_view.hpp"

namespace waggle {

// Which members of an open group's round carry its history on (open_group.hpp).

/// The value of `round_plan::gathered` for a member that has not finished a round of the group yet.
inline constexpr std::string_view newcomer_mark = "new";
/// The value for a member that has entered again since the last round. It may have taken part in
/// another decision about the epoch, so its contribution does not count for this one.
inline constexpr std::string_view returned_mark = "again";
inline bool has_just_entered(std::string_view gathered) {
  return gathered == newcomer_mark || gathered == returned_mark;
}

/// Whether the members at positions `stayed` of a round's plan are a quorum of the members before
/// that plan admitted newcomers. If not, others may have gone on, too: a fork.
bool keeps_majority(const round_plan& plan, member_set stayed);
/// Whether the round of an open group could be decided without `member`, and for the most part by
/// newcomers, who perhaps do not hold the state yet: it may be the only one that does.
/// @param stayed the members that are not lost.
bool leaves_it_to_newcomers(const round_plan& plan, member_set stayed, std::size_t member);
/// How many contributors the next round of an open group needs: as many as were agreed, or all that
/// have finished a round of it if these are fewer. A newcomer that is silent fails no round.
/// At least 1.
[[nodiscard]] std::uint32_t fewest_contributors(const round_plan& plan);
/// To whom a leader that leaves soon gives the lead: the first other member that reduces, and so
/// does not leave soon itself, and is no newcomer. Nothing: there is none.
[[nodiscard]] std::optional<peer_id> successor_in(const round_plan& plan);
/// The name of the branch that begins where a round of `parent` was decided without a majority: the
/// same for all members that go on. Zero stays zero: a group without a history has no branches.
digest forked(const digest& parent, const round_id& round);

} // namespace waggle
