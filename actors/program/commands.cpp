#include "actors/program/commands.hpp"

#include "runtime/cli/bench_codec.hpp"
#include "runtime/cli/commands.hpp"

namespace waggle {

std::vector<command> common_commands() {
  return {node_command(),   swarm_command(), average_command(),
          status_command(), id_command(),    config_command()};
}

std::vector<bench_entry> common_benchmarks() {
  return {allreduce_benchmark(), codec_benchmark(), matchmaking_benchmark()};
}

} // namespace waggle
