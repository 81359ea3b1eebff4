#pragma once

// The commands that need LibTorch are in a program of their own, waggle-trainer, which `waggle`
// starts in its place: loading LibTorch takes longer, and more memory, than all the rest of a peer.

#include <functional>
#include <string>

#include "runtime/cli/bench.hpp"
#include "runtime/cli/command_line.hpp"

namespace waggle {

command train_entry(std::function<int(const run_options&)> run);
command export_entry(std::function<int(const run_options&)> run);
/// `waggle bench train` and `loop`, carried out by `run` with their name in
/// run_options::arguments.
std::vector<bench_entry> train_benchmark_entries(const std::function<int(const run_options&)>& run);

/// Whether waggle-trainer is wanted. Looks at the words alone: what is wrong with them is for the
/// program to say that carries them out.
bool needs_trainer_program(int argc, const char* const* argv);

/// Whether it is installed, and the command can be carried out without it, but does less:
/// `waggle config check` cannot look at a device.
bool does_more_as_trainer_program(int argc, const char* const* argv);

/// Replaces this process by waggle-trainer, from this program's folder, with the same arguments and
/// process id. Returns only if that fails, with the reason in a sentence.
failure exec_trainer_program(char** argv);
/// The same; prints the reason, and returns the exit code.
int become_trainer_program(char** argv);

} // namespace waggle
