// `waggle average`, or with three arguments in front of it (kill or stop, a fault_point, a round)
// the same peer, which breaks there by SIGKILL or SIGSTOP.

#include <csignal>
#include <string_view>

#include "actors/program/commands.hpp"
#include "tests/support/fault_port.hpp"

int main(int argc, char** argv) {
  using namespace waggle;
  if (argc < 5 || argv[1] == std::string_view{"average"})
    return run_command_line(argc, argv, {average_command()});
  auto signal = argv[1] == std::string_view{"stop"} ? SIGSTOP : SIGKILL;
  return run_command_line(argc - 3, argv + 3,
                          {average_command(testing::break_in_round(
                            std::stoull(argv[3]), testing::parse_fault_point(argv[2]), signal))});
}
