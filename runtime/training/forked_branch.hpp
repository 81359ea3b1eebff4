#pragma once

#include "runtime/core/ids.hpp"

namespace waggle {

/// The name of the branch that begins where a round lost the quorum of its group: the same for all
/// who go on from that round.
digest forked_branch(const digest& parent, const round_id& round);

} // namespace waggle
