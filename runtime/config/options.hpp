#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/run_options.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// One option: what the command line, the environment and run files call it, and how it is read.
struct option_spec {
  std::string name;       // "target-batch-size"; in the environment WAGGLE_TARGET_BATCH_SIZE
  std::string value_name; // "N"; empty: a switch
  std::string default_text;
  std::string help;  // one sentence
  std::string group; // "run", "peer", "training", "averaging", …
  std::function<status(run_options&, std::string_view)> set;
  /// Not empty: all peers of a run must have it alike (agreed_options.hpp). Returns what `options`
  /// say, in one spelling; an empty text if that cannot be known on this machine.
  std::function<std::string(const run_options&)> agreed{};
};

/// All options of all commands.
const std::vector<option_spec>& option_table();
const option_spec* find_option(std::string_view name);

/// Values as text, by option name, and where each came from, for error messages.
struct setting {
  std::string value;
  std::string source; // "--lr", "WAGGLE_LR", "run.toml:7"
};
using settings = std::map<std::string, setting>;

/// What the environment sets, of the options named in `taken`. `look_up` is getenv, or a test's.
/// INITIAL_PEERS without prefix counts, too.
settings from_environment(const std::vector<std::string>& taken,
                          const std::function<const char*(const char*)>& look_up);

/// A sentence for each variable ("NAME=value", the list ends with nullptr, as environ does) that
/// begins with WAGGLE_ and belongs to no option, and one for all that Kubernetes sets: a service
/// called waggle must not keep a peer from starting, but what was mistyped should not do nothing in
/// silence.
std::vector<std::string> unknown_variables(const char* const* variables);

/// What a TOML file sets. Keys may be written with - or _, at top level or in tables, whose names
/// do not matter. Fails with ec::bad_config for a file that cannot be read or parsed, and for
/// unknown keys, naming the nearest one, and for keys that are set twice.
result<settings> from_file(const std::filesystem::path& file);

/// Flags beat the environment, which beats the file. Fails with one sentence.
result<run_options> resolve(const settings& file, const settings& environment,
                            const settings& flags);

/// What only several options together can get wrong.
status check_combinations(const run_options& options);

/// A sentence with the cure if `peers` peers on this machine compute with more threads than it has
/// cores (0: not known).
std::optional<std::string> too_many_threads(const run_options& options, std::uint64_t peers,
                                            std::uint64_t cores);

} // namespace waggle
