#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/config/options.hpp"

namespace waggle {

namespace {

int run_config(const run_options& options) {
  if (options.arguments.front() != "check")
    return bad_usage("waggle config can only check: waggle config check FILE");
  auto file = from_file(options.arguments.at(1));
  if (!file)
    return bad_usage(file.error().detail);
  auto resolved = resolve(*file, {}, {});
  if (!resolved)
    return bad_usage(resolved.error().detail);
  std::cout << options.arguments.at(1) << ": " << file->size() << " options, all fine\n";
  return exit_clean;
}

} // namespace

command config_command() {
  return {"config",
          "Checks a run file: waggle config check FILE.",
          "A run file is TOML with any option of any command as a key:\n"
          "  run-id = \"demo\"\n  initial-peers = [\"host:7700\"]\n  [training]\n  lr = 0.003\n",
          {},
          {{"check", "What to do."}, {"FILE", "The run file (TOML)."}},
          run_config};
}

} // namespace waggle
