#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace waggle {

/// How peers that average parameters count the optimizer steps of all of them: each contribution to
/// a round ends with `step_values` more values, which no codec rounds.
///
///     steps of this peer since the last round | history::steps, in three pieces of 17 bits
///
/// The means of these values have equal bytes on all members, so all members end the round with the
/// same sum: the mean of what they knew, and the steps that were made since. If they knew the same,
/// it is exact, because the mean of up to 64 equal pieces is.
constexpr std::size_t step_values = 4;
/// The largest history::steps that is counted.
constexpr std::uint64_t counted_steps_max = (std::uint64_t{1} << 51U) - 1;

/// @param steps of this peer since the last round.
/// @param total history::steps of this peer.
void write_steps(std::span<float, step_values> out, std::uint64_t steps, std::uint64_t total);

/// By how much history::steps changes in a round. One peer that claims too many steps, by mistake
/// or on purpose, moves the others at most `steps_ahead_max` rounds ahead; a peer that has too many
/// comes down to the mean at once.
/// @param means the last `step_values` values of the round's mean; any values, as a member may have
/// contributed them.
/// @param members how many peers made the mean number of steps: those that contributed, or in many
/// groups all that train.
/// @param total history::steps of this peer before the round; null: it has no state yet, and only
/// the steps that were made since the last round count.
std::int64_t change_of_steps(std::span<const float, step_values> means, double members,
                             const std::uint64_t* total);
constexpr std::int64_t steps_ahead_max = 8;

} // namespace waggle
