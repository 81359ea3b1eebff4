#include <iostream>

#include "runtime/cli/commands.hpp"
#include "runtime/cli/peer_address.hpp"
#include "runtime/core/disk.hpp"

namespace waggle {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t file_bytes_max = 1 << 20;

/// That of the peer in `folder`, or of the only one below it.
result<fs::path> find_invitation(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  auto look = [&](const fs::path& in) {
    if (fs::exists(in / invitation_file, none))
      found.push_back(in / invitation_file);
  };
  look(folder);
  for (const auto& each : fs::directory_iterator{folder, none})
    look(each.path());
  if (found.empty())
    return failure{ec::not_found, "no peer that others can join through has run with --data-dir "
                                    + folder.string()
                                    + ": name the folder of one (a client invites nobody)"};
  if (found.size() > 1)
    return failure{ec::not_found, std::to_string(found.size()) + " peers have run in "
                                    + folder.string() + ": name one with --data-dir "
                                    + found.front().parent_path().string()};
  return found.front();
}

int invite(const run_options& options) {
  auto file = find_invitation(options.data_dir);
  if (!file)
    return bad_usage(file.error().detail);
  auto text = make_system_disk()->read(*file, file_bytes_max);
  if (!text)
    return bad_usage(text.error().detail);
  std::cout << *text;
  return exit_clean;
}

} // namespace

command invite_command() {
  return {.name = "invite",
          .summary = "Prints a run file with which others join.",
          .details = "  waggle invite --data-dir /tmp/peer1 > birds.toml    here\n"
                     "  waggle train --config birds.toml                    on another machine\n"
                     "The file has the run's name, its key, addresses and the options that all "
                     "peers share.\n",
          .run = invite,
          .single_options = {"data-dir"}};
}

} // namespace waggle
