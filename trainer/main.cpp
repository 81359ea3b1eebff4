// waggle-trainer: all commands, and LibTorch. Users start it through `waggle`.

#include <malloc.h>

#include "actors/program/commands.hpp"
#include "runtime/cli/signals.hpp"
#include "trainer/train_command.hpp"

namespace {

/// Every micro-step allocates and frees the same tensors. By default, glibc returns memory that is
/// freed outside of the main thread to the system at once, and the next step has page faults again:
/// 7 % of the step of a small model.
void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

} // namespace

int main(int argc, char** argv) {
  using namespace waggle;
  keep_freed_memory();
  ignore_broken_pipes();
  auto commands = common_commands({check_for_training, unused_checkpoint, facts_of_model});
  commands.insert(commands.begin(), train_command());
  commands.push_back(export_command());
  auto benchmarks = common_benchmarks();
  for (auto& benchmark : train_benchmarks())
    benchmarks.push_back(std::move(benchmark));
  commands.push_back(bench_command(std::move(benchmarks)));
  return run_command_line(argc, argv, commands);
}
