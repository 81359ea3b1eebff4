#pragma once

#include "runtime/cli/bench.hpp"
#include "runtime/cli/commands.hpp"

namespace waggle {

command average_command();
command doctor_command(const training_check& check);
command node_command();

/// `waggle bench allreduce`: rounds of one group, by number of peers and size of the
/// vector.
bench_entry allreduce_benchmark();
/// `waggle bench matchmaking`: the time until peers have found each other.
bench_entry matchmaking_benchmark();

/// All commands that need no LibTorch. `check`: for config check and doctor.
std::vector<command> common_commands(const training_check& check = {});
/// All benchmarks that need no LibTorch.
std::vector<bench_entry> common_benchmarks();

} // namespace waggle
