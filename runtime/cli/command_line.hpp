#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/config/run_options.hpp"

namespace waggle {

constexpr int exit_clean = 0;
constexpr int exit_failed = 1;    // a run that failed
constexpr int exit_bad_usage = 2; // nothing was started

struct positional {
  std::string name; // "ADDR"
  std::string help;
  bool required = true; // otherwise it may be left out, and is empty then
};

struct command {
  std::string name;                  // "train"
  std::string summary;               // one line
  std::string details;               // examples, what it prints
  std::vector<std::string> groups{}; // which groups of the option table it takes
  std::vector<positional> arguments{};
  std::function<int(const run_options&)> run;
  bool json_to_output = false; // --json takes no file; the answer goes to standard output
  /// Groups of which the command takes the options that must be equal on all peers of a run.
  std::vector<std::string> agreed_groups{};
  /// Options of other groups, by name.
  std::vector<std::string> single_options{};
  bool makes_key = false;      // the file of --swarm-key need not exist
  bool more_arguments = false; // the last one may be given several times
};

/// Reads the arguments, the environment and --config, and runs the command. Any error in them ends
/// with one sentence on standard error and exit_bad_usage, before anything starts.
int run_command_line(int argc, const char* const* argv, const std::vector<command>& commands);

int bad_usage(const std::string& sentence);

/// Warns on standard error about a setting that is probably not intended.
void warn(const std::string& sentence);

} // namespace waggle
