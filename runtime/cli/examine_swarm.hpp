#pragma once

#include "runtime/config/options.hpp"
#include "runtime/core/endpoint.hpp"

namespace waggle {

/// `waggle doctor HOST:PORT`: asks a peer for the members of its run and those who left, all of
/// them how they are, and prints what is wrong. Returns the exit code.
int examine_swarm(const run_options& options, const endpoint& where);

} // namespace waggle
