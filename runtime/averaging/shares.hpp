#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/averaging/round_plan.hpp"

namespace waggle {

struct share_bid {
  member_mode mode = member_mode::node;
  /// Bytes per second, measured the same way for all members; none: not known, 0: never reduce.
  std::optional<double> bandwidth;
};

/// How many of `elements` values each member reduces, so that the round ends as early as possible.
///
/// A member of a group of N that reduces the fraction w of the vector sends and receives in
/// proportion to 1 + (N-2)·w. The fractions minimise ξ, the largest (1 + (N-2)·wᵢ) / bᵢ
/// (water-filling). The solution has a closed form, so all machines compute the same numbers.
/// Bandwidths are divided by the largest, so their unit does not matter. A member with unknown
/// bandwidth counts as the mean of the known ones; clients and members with bandwidth 0 reduce
/// nothing. Fractions below `min_vector_size / elements` go to others, unless all are below.
/// Fractions become integers that sum to `elements` by the Hagenbach-Bischoff rule.
///
/// Fails with ec::bad_config if no member may reduce, or for more than plan_elements_max elements.
/// Bandwidths must be finite and not negative.
result<std::vector<std::uint64_t>> balanced_shares(const std::vector<share_bid>& members,
                                                   std::uint64_t elements,
                                                   std::uint64_t min_vector_size);

} // namespace waggle
