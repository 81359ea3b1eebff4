#pragma once

#include <cstdint>
#include <vector>

#include "runtime/averaging/round_plan.hpp"

namespace waggle {

/// How many of `elements` values each member reduces: equal shares for all that accept connections,
/// none for clients. Integers that sum to `elements`; the first members get one more where it does
/// not divide. Shares below `min_vector_size` are merged: fewer members reduce then
/// (spec/averaging.md §4.1 for equal bandwidths).
/// REQUIRES: at least one member is no client.
std::vector<std::uint64_t> equal_shares(const std::vector<round_member>& members,
                                        std::uint64_t elements, std::uint64_t min_vector_size);

} // namespace waggle
