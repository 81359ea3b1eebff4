#pragma once

#include <cstdint>

#include "runtime/averaging/result_comparison.hpp"
#include "runtime/averaging/result_digest.hpp"
#include "runtime/averaging/round_plan.hpp"

namespace waggle {

/// Whether the result of the adopted view `adopted` is what its leader and more than half of its
/// participants listed when they compared their results in view `compared`. Otherwise the leader
/// could put any bytes in the place of the result. For a client, one more member than the leader is
/// enough: it receives nothing of other clients.
/// @param self the member that asks.
bool holds_what_most_listed(std::uint32_t compared, const result_comparison& lists,
                            const round_view& adopted, const round_plan& plan, std::size_t self,
                            const result_terms& terms);

} // namespace waggle
