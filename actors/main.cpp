// The program without LibTorch.

#include "actors/commands/bench.hpp"
#include "actors/commands/commands.hpp"
#include "actors/commands/peer_process.hpp"

int main(int argc, char** argv) {
  using namespace waggle;
  hold_signals();
  auto commands = common_commands();
  commands.push_back({"train",
                      "One peer that trains (not in this build).",
                      "",
                      {"run", "peer", "training", "averaging"},
                      {},
                      [](const run_options&) {
                        return bad_usage(
                          "this build has no LibTorch, so it cannot train: build with "
                          "-DWAGGLE_TRAINER=ON");
                      }});
  commands.push_back(bench_command(common_benchmarks()));
  return run_command_line(argc, argv, commands);
}
