#pragma once

#include <memory>
#include <span>

#include "runtime/averaging/open_group.hpp"
#include "runtime/codec/two_round_coding.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"

namespace waggle {

/// How the vectors of these tensors travel; none: one tensor of this role. With a coding: the two
/// that it replaces each of them by. Fails with ec::bad_config, also if the tensors are not
/// `elements` values together, which a coding does not send.
result<std::vector<codec_plan>>
vectors_of(const codec_choice& codec, tensor_role role, std::uint64_t elements,
           std::span<const std::shared_ptr<const std::vector<tensor_info>>> tensors,
           const two_round_coding* coding);

/// The terms of an open group from this peer's configuration. `vectors`, `all_each_epoch`: see
/// open_group::terms.
open_group::terms terms_of(const matchmaking_config& config, std::vector<codec_plan> vectors,
                           bool all_each_epoch = false);

/// The terms that an auxiliary without a vector adopts from the group that admits it with `plan`:
/// what is reduced, and how. `schema`, `members_max` (0: not known), `vectors` (none: that of the
/// plan alone) and `all_each_epoch` come with the plan. Fails with the reason if it cannot reduce
/// for that group, or if one of its vectors is longer than `elements_max`.
result<open_group::terms> adopted_terms(const matchmaking_config& config, const round_plan& plan,
                                        const digest& schema, std::size_t members_max,
                                        std::vector<codec_plan> vectors, bool all_each_epoch,
                                        std::uint64_t elements_max);

} // namespace waggle
