// The whole program.

#include <malloc.h>

#include "actors/commands/commands.hpp"
#include "actors/commands/peer_process.hpp"
#include "trainer/train_command.hpp"

namespace {

/// Every micro-step allocates and frees the same tensors. By default glibc gives memory that a
/// thread other than the first one frees back to the system at once, and the next step pays for it
/// with page faults: 7 % of a small model's step.
void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

} // namespace

int main(int argc, char** argv) {
  using namespace waggle;
  keep_freed_memory();
  hold_signals();
  auto commands = common_commands();
  commands.insert(commands.begin(), train_command());
  auto benchmarks = common_benchmarks();
  benchmarks.push_back(train_benchmark());
  commands.push_back(bench_command(std::move(benchmarks)));
  return run_command_line(argc, argv, commands);
}
