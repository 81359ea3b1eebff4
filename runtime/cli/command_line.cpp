// The only file that includes CLI11: it takes seconds to compile.

#include "runtime/cli/command_line.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "runtime/cli/readable.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/core/private_file.hpp"
#include "runtime/core/version.hpp"

namespace waggle {

namespace {

// A sentence may quote a peer.
constexpr std::size_t sentence_bytes_max = 4096;

constexpr const char* about =
  "Waggle trains one model on many unreliable machines, with no server in charge.\n\n"
  "  waggle train --data some.txt                      start a run; it prints the line to join "
  "with\n"
  "  waggle swarm --peers 4 --data some.txt            try it: four peers on this machine\n"
  "  waggle doctor --initial-peers seed:7700           find out what would go wrong\n"
  "  waggle status 127.0.0.1:7700                      show the status of a peer\n";

std::vector<std::string> options_of(const command& what) {
  std::vector<std::string> names;
  auto among = [](const std::vector<std::string>& all, const std::string& one) {
    return std::ranges::find(all, one) != all.end();
  };
  for (const auto& spec : option_table())
    if (among(what.groups, spec.group) || among(what.single_options, spec.name)
        || (spec.agreed && among(what.agreed_groups, spec.group)))
      names.push_back(spec.name);
  return names;
}

/// Notes for the help text: the syntax of TIME and BYTES, if the command takes such values, and the
/// environment.
std::string notes_on(const command& what) {
  const auto names = options_of(what);
  auto takes = [&](const char* value_name) {
    return std::ranges::any_of(
      names, [&](const auto& n) { return find_option(n)->value_name == value_name; });
  };
  std::string notes;
  if (takes("TIME"))
    notes += "\nTIME: 500ms, 5s, 2m or 1h.";
  if (takes("BYTES"))
    notes += " BYTES: 65536, 64KiB or 16MiB.";
  if (takes("TIME"))
    notes += "\nOptions can also be set in the environment: WAGGLE_LOG_LEVEL=debug is --log-level "
             "debug.\n";
  return notes;
}

/// "waggle config check FILE"
std::string usage_of(const command& what) {
  std::string usage = "waggle " + what.name;
  for (const auto& argument : what.arguments)
    usage += " " + argument.name;
  return usage;
}

struct parsed_command {
  const command* what = nullptr;
  CLI::App* app = nullptr;
  std::map<std::string, std::string> values;
  std::map<std::string, CLI::Option*> options;
  std::string config;
  std::vector<std::string> arguments;
};

void declare(CLI::App& root, parsed_command& into) {
  auto* app = root.add_subcommand(into.what->name, into.what->summary);
  into.app = app;
  app->footer(into.what->details + notes_on(*into.what));
  app->allow_extras();
  app
    ->add_option(
      "--config", into.config,
      "A run file (TOML) with any of these options; flags and environment take precedence.")
    ->type_name("FILE");
  for (const auto& name : options_of(*into.what)) {
    const auto& spec = *find_option(name);
    if (name == "json" && into.what->json_to_output) {
      const std::string help = "Write the answer as JSON.";
      into.options[name] = app->add_flag("--json", help)->group(spec.group);
      continue;
    }
    auto* option = app->add_option("--" + name, into.values[name], spec.help);
    option->type_name(spec.value_name)->group(spec.group);
    if (!spec.default_text.empty() && !spec.value_name.empty())
      option->type_name(spec.value_name + " [" + spec.default_text + "]");
    if (spec.value_name.empty())
      option->expected(0, 1);
    into.options[name] = option;
  }
  into.arguments.resize(into.what->arguments.size()); // CLI11 keeps references to its elements
  for (std::size_t i = 0; i < into.arguments.size(); ++i)
    app->add_option(into.what->arguments[i].name, into.arguments[i], into.what->arguments[i].help)
      ->required(into.what->arguments[i].required)
      ->type_name("");
}

int run_parsed(parsed_command& chosen) {
  auto taken = options_of(*chosen.what);
  for (const auto& [name, value] : chosen.values)
    if (value.rfind("--", 0) == 0) // the next option was taken for its value
      return bad_usage("--" + name + " needs a value (" + find_option(name)->value_name + ")");
  for (const auto& extra : chosen.app->remaining()) {
    if (chosen.what->more_arguments && !extra.starts_with('-')) {
      chosen.arguments.push_back(extra);
      continue;
    }
    if (extra.size() > 1 && extra[0] == '-' && extra[1] != '-')
      return bad_usage("waggle " + chosen.what->name + " has no option " + extra
                       + ": options begin with --, except -h");
    if (extra.rfind("--", 0) != 0)
      return bad_usage("'" + extra + "' is one argument too many for waggle " + chosen.what->name);
    auto wrong = extra.substr(2, extra.find('=') == std::string::npos ? std::string::npos
                                                                      : extra.find('=') - 2);
    auto known = taken;
    known.insert(known.end(), {"config", "help"});
    return bad_usage("waggle " + chosen.what->name + " has no option --" + wrong
                     + "; the nearest is --" + nearest(wrong, known));
  }
  settings flags;
  for (const auto& [name, option] : chosen.options)
    if (option->count() > 0) {
      auto value = chosen.values[name]; // empty for a flag
      bool is_switch = find_option(name)->value_name.empty() || chosen.what->json_to_output;
      flags[name] = {value.empty() && is_switch ? "true" : value, "--" + name};
    }
  for (const auto& sentence : unknown_variables(environ))
    warn(sentence);
  if (const char* named = std::getenv("WAGGLE_CONFIG"); chosen.config.empty() && named != nullptr)
    chosen.config = without_wrapping(named);
  settings file;
  if (!chosen.config.empty()) {
    auto read = from_file(chosen.config);
    if (!read)
      return bad_usage(read.error().detail);
    file = *read;
  }
  auto options =
    resolve(file, from_environment(taken, [](const char* n) { return std::getenv(n); }), flags);
  if (!options)
    return bad_usage(options.error().detail);
  options->arguments = chosen.arguments;
  if (auto key = chosen.what->makes_key ? status{done{}} : load_key(*options); !key)
    return bad_usage(key.error().detail);
  if (is_inline_key(options->swarm_key))
    if (auto open = readable_by_others(chosen.config))
      warn(*open);
  const auto& groups = chosen.what->groups;
  auto takes = [&](const char* group) { return std::ranges::find(groups, group) != groups.end(); };
  if (takes("peer") && takes("training")) // waggle swarm checks this for all its peers
    if (auto crowded = too_many_threads(*options, 1, std::thread::hardware_concurrency()))
      warn(*crowded);
  return chosen.what->run(*options);
}

} // namespace

int bad_usage(const std::string& sentence) {
  std::cerr << "waggle: " << without_control_characters(sentence, sentence_bytes_max) << "\n";
  return exit_bad_usage;
}

void warn(const std::string& sentence) {
  std::cerr << "waggle: warning: " << sentence << "\n";
}

int run_command_line(int argc, const char* const* argv, const std::vector<command>& commands) {
  CLI::App root{about, "waggle"};
  root.set_version_flag("--version", std::string{"waggle "} + version);
  root.allow_extras();
  root.require_subcommand(0, 1);
  std::vector<parsed_command> parsed(commands.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    parsed[i].what = &commands[i];
    declare(root, parsed[i]);
    names.push_back(commands[i].name);
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& e) { // --help or --version
    return root.exit(e);
  } catch (const CLI::RequiredError&) {
    for (const auto& candidate : parsed)
      if (candidate.app->parsed())
        return bad_usage("an argument is missing: " + usage_of(*candidate.what) + " (see waggle "
                         + candidate.what->name + " --help)");
    throw; // only commands have arguments
  } catch (const CLI::ArgumentMismatch& e) {
    // "--lr: 1 required X [0.003] missing", "--lr: At Most 1 required but received 2"
    const std::string said = e.what();
    const auto name = said.substr(0, said.find(':'));
    return bad_usage(said.ends_with(" missing") ? name + " needs a value"
                                                : name + " is given more than once");
  } catch (const CLI::ParseError& e) {
    return bad_usage(std::string{e.what()} + " (see --help)");
  }
  auto extras = root.remaining();
  if (!extras.empty() && extras.front() == "help") {
    std::cout << root.help();
    return exit_clean;
  }
  if (!extras.empty() && extras.front().starts_with("-"))
    return bad_usage("'" + extras.front()
                     + "' is before the command: options come after it, as in waggle "
                     + names.front() + " " + extras.front());
  for (auto& candidate : parsed)
    if (candidate.app->parsed())
      return run_parsed(candidate);
  if (!extras.empty())
    return bad_usage("there is no command '" + extras.front() + "'; the nearest is '"
                     + nearest(extras.front(), names) + "' (see --help)");
  std::cout << root.help();
  return exit_bad_usage;
}

} // namespace waggle
