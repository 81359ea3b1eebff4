// The whole program.

#include "actors/commands/commands.hpp"
#include "actors/commands/peer_process.hpp"
#include "trainer/train_command.hpp"

int main(int argc, char** argv) {
  using namespace waggle;
  hold_signals();
  auto commands = common_commands();
  commands.insert(commands.begin(), train_command());
  commands.push_back(bench_command());
  return run_command_line(argc, argv, commands);
}
