#include "actors/program/commands.hpp"

namespace waggle {

std::vector<command> common_commands(const training_check& check) {
  return {node_command(),   swarm_command(),       average_command(),     status_command(),
          health_command(), doctor_command(check), replay_command(),      id_command(),
          invite_command(), members_command(),     config_command(check), plan_command(check)};
}

std::vector<bench_entry> common_benchmarks() {
  return {allreduce_benchmark(), matchmaking_benchmark()};
}

} // namespace waggle
