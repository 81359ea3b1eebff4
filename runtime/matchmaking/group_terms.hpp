#pragma once

#include "runtime/averaging/open_group.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"

namespace waggle {

/// The terms of an open group whose vector is encoded by `codecs`, from this peer's configuration.
/// `second_round`: see open_group::terms.
open_group::terms terms_of(const matchmaking_config& config, const codec_plan& codecs,
                           const codec_plan& second_round = {});

/// The terms that an auxiliary without a vector adopts from the group that admits it with `plan`:
/// what is reduced, and how. `schema`, `members_max` (0: not known) and `second_round` come with
/// the plan. Fails with the reason if it cannot reduce for that group, or if its vectors are longer
/// than `elements_max`.
result<open_group::terms> adopted_terms(const matchmaking_config& config, const round_plan& plan,
                                        const digest& schema, std::size_t members_max,
                                        const codec_plan& second_round, std::uint64_t elements_max);

} // namespace waggle
