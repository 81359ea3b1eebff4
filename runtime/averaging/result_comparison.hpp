#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "runtime/averaging/by_view.hpp"
#include "runtime/core/ids.hpp"

namespace waggle {

/// What the members of a view report that they hold: for each group of parts its digest
/// (`group_digest`). All lists have as many groups.
using result_lists = by_view<std::vector<digest>>;

struct result_findings {
  member_set at_fault;
  bool we_hold_most = true; // what most members hold, in every group
};

/// Finds out why results differ.
///
/// A reducer is at fault if it reports that it sent something else than most members hold, or if no
/// digest of one of its groups is held by more than half of them: while most members are honest,
/// it then sent different bytes to honest members. A member that differs from most others while the
/// reducer agrees with these is not blamed, and neither is the reducer: either may lie. That member
/// is sent the bytes that the others hold (repair), so neither can have the other left out.
///
/// @param among the members whose lists for view `number` are here; contains `self`.
/// @param reducer the member that reduced a group in this view; nothing if several did.
[[nodiscard]] result_findings
compare_results(const result_lists& lists, std::uint32_t number, member_set among, std::size_t self,
                const std::function<std::optional<std::size_t>(std::size_t group)>& reducer);

/// Whether what `member` listed for view `number` is what at least `most` of `among` listed, in
/// every group.
[[nodiscard]] bool is_held_by(const result_lists& lists, std::size_t most, member_set among,
                              std::size_t member, std::uint32_t number);

} // namespace waggle
