#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/averaging/round_plan.hpp"

namespace waggle {

/// What a member can do for a round.
struct share_bid {
  member_mode mode = member_mode::node;
  /// Bytes per second, the same way for all; none: not known, 0: never reduce.
  std::optional<double> bandwidth;
};

/// How many of `elements` values each member reduces, so that the round is over soonest
/// (spec/averaging.md §4.1).
///
/// A member of a group of N that reduces the fraction w of the vector sends and receives in
/// proportion to 1 + (N-2)·w. The fractions minimise ξ, the largest (1 + (N-2)·wᵢ) / bᵢ: water is
/// poured where time is left. Closed form, so the same numbers on every machine; bandwidths are
/// divided by the largest, so their unit does not matter. Who does not know its bandwidth counts as
/// the mean of those who do; clients and bandwidth 0 reduce nothing. Fractions below
/// `min_vector_size / elements` go to others, unless all are. Fractions become integers that sum to
/// `elements` by the Hagenbach-Bischoff rule.
///
/// Fails with ec::bad_config if nobody may reduce, or for more than plan_elements_max elements.
/// Bandwidths must be finite and not negative.
result<std::vector<std::uint64_t>> balanced_shares(const std::vector<share_bid>& members,
                                                   std::uint64_t elements,
                                                   std::uint64_t min_vector_size);

} // namespace waggle
