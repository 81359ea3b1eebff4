#pragma once

#include <string>
#include <vector>

#include "runtime/cli/swarm_findings.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/endpoint.hpp"

namespace waggle {

/// Asks each member from `first` on for its status, and returns what /api/v1/peers of those say
/// that answer, else empty texts. @param encrypted as http_get's.
std::vector<std::string> ask_members(std::vector<asked_member>& members, std::size_t first,
                                     const std::optional<swarm_key>& key, bool encrypted);

/// `waggle doctor HOST:PORT`: asks a peer for the members of its run and those who left, all of
/// them how they are, and prints what is wrong. Returns the exit code.
int examine_swarm(const run_options& options, const endpoint& where);

} // namespace waggle
