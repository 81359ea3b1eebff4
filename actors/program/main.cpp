// The program that users start. It has no LibTorch; see runtime/cli/trainer_program.hpp.

#include "actors/program/commands.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/cli/trainer_program.hpp"

int main(int argc, char** argv) {
  using namespace waggle;
  if (needs_trainer_program(argc, argv) || does_more_as_trainer_program(argc, argv))
    return become_trainer_program(argv);
  ignore_broken_pipes();
  auto train = [argv](const run_options&) { return become_trainer_program(argv); };
  training_check check; // of a model only `plan` asks, of which there is nothing to see so far
  check.facts = [argv](const run_options&, model_look) {
    auto why = exec_trainer_program(argv);
    why.detail += "; a plan needs none with --values N and --step-time TIME";
    return why;
  };
  auto commands = common_commands(check);
  commands.insert(commands.begin(), train_entry(train));
  commands.push_back(export_entry(train));
  auto benchmarks = common_benchmarks();
  for (auto& benchmark : train_benchmark_entries(train))
    benchmarks.push_back(std::move(benchmark));
  commands.push_back(bench_command(std::move(benchmarks)));
  return run_command_line(argc, argv, commands);
}
