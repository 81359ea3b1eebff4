#include "actors/program/commands.hpp"
#include "actors/program/node_options.hpp"
#include "actors/program/peer_process.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/config/agreed_options.hpp"

namespace waggle {

namespace {

int run_node(const run_options& options) {
  hold_signals();
  auto process = peer_process::prepare(options);
  if (!process)
    return bad_usage(process.error().detail);
  auto& p = **process;
  auto config = p.base_config();
  // A node that is given the options of the training checks and announces them.
  if (sets_agreed(options)) {
    auto agreement = training_agreement(options, protocol_version);
    if (!agreement)
      return p.refuse(agreement.error().detail);
    config.agreement = std::make_shared<const run_agreement>(std::move(*agreement));
  }
  if (options.reduce_for_clients)
    config.helping = helping_from(options);
  auto peer = p.start(config);
  if (!peer)
    return p.refuse(peer.error().detail);
  p.print_start(config, *peer);
  return p.run_until_done(*peer, {});
}

} // namespace

command node_command() {
  return {
    "node",
    "A peer without a model: bootstrap, DHT, metrics; reduces for clients.",
    "Others join the run through it:\n  waggle node --run-id demo\n"
    "With the options of the training it prints the line that trainers join with, and refuses\n"
    "those that were started with different options:\n"
    "  waggle node --run-id demo --data /usr/share/common-licenses\n"
    "Trainers in client mode cannot reach each other. If no trainer of the run accepts\n"
    "connections, they average through this node.\n",
    {"run", "peer", "helping"},
    {},
    run_node,
    false,
    {"training", "averaging"}};
}

} // namespace waggle
