#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/config/options.hpp"
#include "runtime/data/data_set.hpp"

namespace waggle {

namespace {

bool sets_one_of(const settings& file, std::string_view group) {
  for (const auto& [name, setting] : file)
    if (find_option(name)->group == group)
      return true;
  return false;
}

status check_without_torch(const run_options& options) {
  if (auto usable = check_training_options(options); !usable || options.data == "synthetic")
    return usable;
  auto data = open_data_set(request_of(options, data_role::training));
  return data ? status{done{}} : data.error();
}

int run_config(const run_options& options, const training_check& check) {
  if (options.arguments.front() != "check")
    return bad_usage("waggle config can only check: waggle config check FILE");
  const auto& name = options.arguments.at(1);
  auto file = from_file(name);
  if (!file)
    return bad_usage(file.error().detail);
  auto resolved = resolve(*file, {}, {});
  if (!resolved)
    return bad_usage(resolved.error().detail);
  if (auto key = load_key(*resolved); !key)
    return bad_usage(key.error().detail);
  auto counted = name + ": " + std::to_string(file->size()) + " options, ";
  auto trains = check ? check.usable(*resolved) : check_without_torch(*resolved);
  if (trains) {
    std::cout << counted << "all fine"
              << (check ? "" : " (but --device: there is no waggle-trainer here)") << "\n";
    return exit_clean;
  }
  // Options of averaging without a model mean something else there.
  if (sets_one_of(*file, "average") || !sets_one_of(*file, "training")) {
    std::cout << counted << "fine for waggle average and waggle node; waggle train refuses them: "
              << trains.error().detail << "\n";
    return exit_clean;
  }
  return bad_usage(trains.error().detail);
}

} // namespace

command config_command(training_check check) {
  return {
    "config",
    "Checks a run file: waggle config check FILE.",
    "A run file is TOML with any option of any command as a key:\n"
    "  run-id = \"demo\"\n  initial-peers = [\"host:7700\"]\n  [training]\n  lr = 0.003\n"
    "It is checked as waggle train would on this machine: its data and device, too.\n",
    {},
    {{"check", "What to do."}, {"FILE", "The run file (TOML)."}},
    [check = std::move(check)](const run_options& options) { return run_config(options, check); }};
}

} // namespace waggle
