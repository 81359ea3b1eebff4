// The commands node, id and config.

#include <iostream>

#include "actors/commands/commands.hpp"
#include "actors/commands/peer_process.hpp"
#include "runtime/config/agreed_options.hpp"
#include "runtime/config/nearest.hpp"
#include "runtime/config/options.hpp"

namespace waggle {

namespace {

int run_node(const run_options& options) {
  auto process = peer_process::prepare(options);
  if (!process)
    return bad_usage(process.error().detail);
  auto& p = **process;
  auto config = p.base_config();
  // A node that is given the options of the training checks and announces them.
  if (sets_agreed(options)) {
    auto agreement = training_agreement(options, net::protocol_version);
    if (!agreement)
      return bad_usage(agreement.error().detail);
    config.agreement = std::make_shared<const run_agreement>(std::move(*agreement));
  }
  if (options.reduce_for_clients)
    config.helping = helping_from(options);
  auto peer = p.start(config);
  if (!peer)
    return bad_usage(peer.error().detail);
  return p.run_until_done(*peer, {});
}

int run_id(const run_options& options) {
  auto file = options.identity.value_or(options.data_dir / "identity.pem");
  auto key = identity::load_or_create(file);
  if (!key)
    return bad_usage(key.error().detail);
  std::cout << to_string((*key)->id()) << "\n";
  std::cerr << "from " << file.string() << "\n";
  return exit_clean;
}

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

command node_command() {
  return {
    "node",
    "A peer without a model: bootstrap, DHT, metrics; reduces for clients.",
    "Others join the run through it:\n  waggle node --listen 0.0.0.0:7700 --run-id demo\n"
    "With the options of the training it prints the line that trainers join with, and refuses\n"
    "those that were started with different options:\n"
    "  waggle node --listen 0.0.0.0:7700 --run-id demo --data /usr/share/common-licenses\n"
    "Trainers in client mode cannot reach each other. If no trainer of the run accepts\n"
    "connections, they average through this node.\n",
    {"run", "peer", "helping"},
    {},
    run_node,
    false,
    {"training", "averaging"}};
}

command id_command() {
  return {"id",
          "Shows this peer's id; makes its key if there is none.",
          "The key stays in --data-dir (identity.pem, readable by its owner only).\n",
          {"run", "peer"},
          {},
          run_id};
}

command config_command() {
  return {"config",
          "Checks a run file: waggle config check FILE.",
          "A run file is TOML with any option of any command as a key:\n"
          "  run-id = \"demo\"\n  initial-peers = [\"host:7700\"]\n  [training]\n  lr = 0.003\n",
          {},
          {{"check", "What to do."}, {"FILE", "The run file (TOML)."}},
          run_config};
}

std::vector<command> common_commands() {
  return {node_command(),   swarm_command(), average_command(),
          status_command(), id_command(),    config_command()};
}

} // namespace waggle
