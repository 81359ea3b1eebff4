#pragma once

#include "actors/commands/bench.hpp"

namespace waggle {

/// `waggle bench allreduce`: rounds of a persistent group, by number of peers and size of the
/// vector.
bench_entry allreduce_benchmark();

/// `waggle bench matchmaking`: the time until peers have found each other.
bench_entry matchmaking_benchmark();

} // namespace waggle
