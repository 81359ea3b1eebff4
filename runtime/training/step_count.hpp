#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace waggle {

/// How peers that average parameters count the optimizer steps of all of them: each contribution to
/// a round ends with `step_values` more values, which no codec rounds. Their means have equal bytes
/// on all members, and so does what follows from them.
///
///     steps of this peer since the last round | history::steps, in three pieces of 17 bits
///
/// A piece is small enough that the mean of up to 64 equal ones is exact. So peers that agree on
/// history::steps go on to agree, and one that has missed a round comes nearer with each round
/// until it agrees, too.
constexpr std::size_t step_values = 4;
/// The largest history::steps that is counted.
constexpr std::uint64_t counted_steps_max = (std::uint64_t{1} << 51U) - 1;

/// @param steps of this peer since the last round.
/// @param total history::steps of this peer.
void write_steps(std::span<float, step_values> out, std::uint64_t steps, std::uint64_t total);

/// By how much history::steps grows in a round.
/// @param means the last `step_values` values of the round's mean; any values, as a member may have
/// contributed them.
/// @param members how many peers made the mean number of steps: the round's sum of weights, or in
/// many groups the number of peers that train.
/// @param total history::steps of this peer before the round; null: it has no state yet.
std::uint64_t steps_of_round(std::span<const float, step_values> means, double members,
                             const std::uint64_t* total);

} // namespace waggle
