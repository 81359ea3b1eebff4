#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/run_options.hpp"
#include "runtime/core/result.hpp"
#include "runtime/crypto/member_list.hpp"

namespace waggle {

/// What an option needs of the others if it has another value than its default.
struct requirement {
  std::function<bool(const run_options&)> met;
  std::string unless; // follows its name: "needs --min-peers 2 or more: …"
};

/// How a loop of one's own sets an option of `waggle train`. Without a text: like any other, in
/// swarm_options::more, or as an argument of waggle.Optimizer.
struct loop_use {
  std::string member;    // of swarm_options
  std::string instead;   // it has no such option; what to do
  std::string in_python; // the same where only loops in Python have none
};

/// The field of run_options that an option sets, and what else is known of its value.
struct option_value {
  std::function<status(run_options&, std::string_view)> set;
  /// The value in `options`, in one spelling, which `set` accepts; empty: it has none.
  std::function<std::string(const run_options&)> get;
  /// Not empty: all peers of a run must have the same value (agreed_options.hpp). Returns the value
  /// in `options`, in one spelling; an empty text if it cannot be determined on this machine.
  std::function<std::string(const run_options&)> agreed{};
  std::vector<requirement> needs{};
  loop_use loops{};
};

/// One option: its name on the command line, in the environment and in run files, and its value.
struct option_spec : option_value {
  std::string name;         // "target-batch-size"; in the environment WAGGLE_TARGET_BATCH_SIZE
  std::string value_name;   // "N"; empty: a switch
  std::string default_text; // `get` of the field's initializer
  std::string help;         // one sentence
  std::string group;        // "run", "peer", "training", "averaging", …
};

const std::vector<option_spec>& option_table();
const option_spec* find_option(std::string_view name);

/// Values as text, by option name, and the source of each, for error messages.
struct setting {
  std::string value;
  std::string source; // "--lr", "WAGGLE_LR", "run.toml:7"
};
using settings = std::map<std::string, setting>;

/// The value of an environment variable without what editors and tools put around it: blanks and
/// line ends (a secret that was read from a file), and one pair of quotes (Docker's --env-file
/// keeps them).
std::string without_wrapping(std::string_view value);

/// The values that the environment sets, of the options named in `taken`. `look_up` is getenv, or a
/// test's. INITIAL_PEERS and PL_INITIAL_PEERS are read, too.
settings from_environment(const std::vector<std::string>& taken,
                          const std::function<const char*(const char*)>& look_up);

/// One sentence for each environment variable ("NAME=value"; the list ends with nullptr, as environ
/// does) that begins with WAGGLE_ and belongs to no option, and one for all variables that
/// Kubernetes sets. They are warnings, not errors: a Kubernetes service called waggle must not keep
/// a peer from starting, but a mistyped variable must not be ignored silently.
std::vector<std::string> unknown_variables(const char* const* variables);

/// The variables ("NAME=value"; the list ends with nullptr) from which `from_environment` reads no
/// option: the environment of a child that gets its options as flags.
std::vector<const char*> without_options(const char* const* variables);

/// The values that a TOML file sets. Keys may be written with - or _, at top level or in tables;
/// the names of tables are ignored. Fails with ec::bad_config for a file that cannot be read or
/// parsed, for unknown keys, naming the nearest one, and for keys that are set twice.
result<settings> from_file(const std::filesystem::path& file);

/// Combines the sources: flags override the environment, which overrides the file. Fails with one
/// sentence.
result<run_options> resolve(const settings& file, const settings& environment,
                            const settings& flags);

/// Reads the file of --swarm-key, if there is one. Fails with a sentence.
status load_key(run_options& options);

/// Who belongs to the run, with the list of --members-list if there is one. Null: there is no
/// --members. Fails with a sentence.
result<std::shared_ptr<run_members>> membership_of(const run_options& options);

/// Who reads a sentence, and writes options in a way of his own: "--min-peers",
/// "swarm_options::more: min-peers", "min_peers".
enum class option_writer : std::uint8_t { command_line, cpp_loop, python_loop };
/// `sentence`, in which an option stands as --NAME. What stands in backticks is a command, and
/// stays.
std::string as_written(std::string_view sentence, option_writer who);

/// Whether --model names a TorchScript file instead of a built-in model.
bool is_torchscript(std::string_view model);
struct data_request;
enum class data_role : std::uint8_t;
/// What --data or --eval-data and the options beside it describe.
data_request request_of(const learner_options& options, data_role role);
struct optimizer_identity;
/// The optimizer, with its defaults where nothing is set.
optimizer_identity optimizer_of(const run_options& options);
/// The length of the run in epochs of --schedule; 0: not known.
std::uint64_t schedule_length(const run_options& options);
result<lr_schedule> schedule_of(const run_options& options);

/// Statistics of the optimizer that are averaged with the parameters.
std::vector<std::string> averaged_statistics_of(const run_options& options);
/// A sentence for the operator if the peers average parameters, but not the squares by which an
/// adaptive optimizer scales each peer's steps, and no option confirms this; otherwise empty.
std::string unaveraged_squares(const run_options& options);

/// Whether the number of group bits follows the size of the swarm.
bool elastic_bits(const run_options& options);

/// The number of part_workers: --reduce-threads, or with auto the cores (of `cores`; 0: not known)
/// that remain beside the `computing` threads, the thread of the network and the actors.
std::uint64_t part_workers(const std::optional<std::uint64_t>& reduce_threads,
                           std::uint64_t computing, std::uint64_t cores);

status check_combinations(const run_options& options);
/// Checks options that other commands use in another way than `waggle train`. Fails with
/// ec::bad_config and a sentence.
status check_training_options(const run_options& options);
/// The part of check_combinations that depends on the optimizer: whether the strategy is for it,
/// and whether it keeps the statistics that are averaged. Fails with ec::bad_config and a sentence.
status check_optimizer_of_strategy(const run_options& options);

/// A warning with a remedy if `peers` peers on this machine compute with more threads than it has
/// cores (0: not known).
std::optional<std::string> too_many_threads(const run_options& options, std::uint64_t peers,
                                            std::uint64_t cores);

} // namespace waggle
