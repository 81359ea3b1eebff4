#include "runtime/cli/trainer_program.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <unistd.h>

namespace waggle {

command train_entry(std::function<int(const run_options&)> run) {
  return {
    "train",
    "A peer that trains: it joins a run, or starts a new one.",
    "The first peer prints the join line: the command with which others join, on any machine:\n"
    "  waggle train --run-id demo --data /usr/share/common-licenses\n"
    "  waggle train --run-id demo --data /usr/share/common-licenses --initial-peers HOST:7700\n",
    {"run", "peer", "training", "averaging"},
    {},
    std::move(run)};
}

command export_entry(std::function<int(const run_options&)> run) {
  return {
    "export",
    "Writes the model of a peer's last checkpoint to a file: waggle export --data-dir DIR OUT.",
    "  waggle export model.safetensors                  of the peer of this folder (in .waggle)\n"
    "  waggle export --data-dir /data/a --format torchscript --model net.pt trained.pt\n"
    "The peer may run. Of a damaged checkpoint, the one before it is written, and that is said.\n",
    {"export", "run", "training"},
    {{"OUT", "The file to write."}},
    std::move(run)};
}

std::vector<bench_entry>
train_benchmark_entries(const std::function<int(const run_options&)>& run) {
  return {{"train",
           "steps per second of a swarm of one peer, against a plain LibTorch loop with the same "
           "model",
           "waggle bench train --steps 64 --json train.json", run},
          {"loop",
           "the plain LibTorch loop alone: samples per second and peak memory; steps once per "
           "--target-batch-size",
           "waggle bench loop --steps 1024 --json loop.json", run}};
}

bool needs_trainer_program(int argc, const char* const* argv) {
  using std::string_view;
  if (argc < 2)
    return false;
  // An option's value may be such a word, too: waggle-trainer has all commands.
  auto needs = [](const char* word) {
    return string_view{word} == "train" || string_view{word} == "loop";
  };
  return string_view{argv[1]} == "train" || string_view{argv[1]} == "export"
         || (string_view{argv[1]} == "bench" && std::any_of(argv + 2, argv + argc, needs));
}

namespace {

std::filesystem::path trainer_program(std::error_code& unreadable) {
  auto self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  return self.parent_path() / "waggle-trainer";
}

} // namespace

bool does_more_as_trainer_program(int argc, const char* const* argv) {
  std::error_code unreadable;
  std::string_view name = argc > 1 ? argv[1] : "";
  bool of_a_swarm = argc > 2 && argv[2][0] != '-'; // doctor HOST:PORT
  return (name == "config" || (name == "doctor" && !of_a_swarm))
         && std::filesystem::exists(trainer_program(unreadable), unreadable);
}

failure exec_trainer_program(char** argv) {
  std::error_code unreadable;
  auto trainer = trainer_program(unreadable);
  if (unreadable)
    return {ec::io_error, "cannot find this program's folder: " + unreadable.message()};
  ::execv(trainer.c_str(), argv);
  if (errno == ENOENT)
    return {ec::io_error,
            "`waggle " + std::string{argv[1]}
              + "` needs LibTorch, which is in the program waggle-trainer, and there is no "
              + trainer.string()
              + ": build both from the sources by scripts/setup.sh --program, or install Debian's "
                "package waggle-trainer; `python3 -m waggle SCRIPT` and loops in Python train "
                "without it"};
  return {ec::io_error, "cannot start " + trainer.string() + ": " + std::strerror(errno)};
}

int become_trainer_program(char** argv) {
  return bad_usage(exec_trainer_program(argv).detail);
}

} // namespace waggle
