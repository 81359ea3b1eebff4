#include "trainer/train_command.hpp"

#include <chrono>

#include "actors/commands/peer_process.hpp"
#include "runtime/config/agreed_options.hpp"
#include "runtime/core/byte_io.hpp"
#include "runtime/crypto/digest.hpp"

namespace waggle {

namespace {

std::uint64_t seed_from(std::string_view text) {
  auto hash = sha256(text);
  return byte_reader{hash.view()}.get<std::uint64_t>();
}

int run_train(const run_options& options) {
  if (auto usable = check_learner_config(learner_from(options, {})); !usable)
    return bad_usage(usable.error().detail);
  auto process = peer_process::prepare(options);
  if (!process)
    return bad_usage(process.error().detail);
  auto& p = **process;
  auto config = p.base_config();
  auto agreement = training_agreement(options, net::protocol_version);
  if (!agreement)
    return bad_usage(agreement.error().detail);
  config.agreement = std::make_shared<const run_agreement>(std::move(*agreement));
  add_training(config, options, p.self().id(), p.data_dir());
  auto peer = p.start(config);
  if (!peer)
    return bad_usage(peer.error().detail);

  using clock = std::chrono::steady_clock;
  caf::scoped_actor asker{p.system()};
  std::optional<clock::time_point> finished_at;
  auto asked = clock::now();
  return p.run_until_done(*peer, [&] {
    if (options.epochs == 0)
      return false;
    if (!finished_at && clock::now() - asked >= 1s) {
      asked = clock::now();
      asker->request(peer->parts.trainer, 500ms, get_training_status{})
        .receive(
          [&](const training_status& status) {
            if (status.phase == trainer_phase::finished)
              finished_at = clock::now();
          },
          [](const caf::error&) { /* it is computing: ask again in a second */ });
    }
    return finished_at && clock::now() - *finished_at >= options.linger;
  });
}

} // namespace

learner_config learner_from(const run_options& o, const peer_id& peer) {
  learner_config c;
  c.model = o.model;
  c.layers = static_cast<std::int64_t>(o.layers);
  c.width = static_cast<std::int64_t>(o.width);
  c.heads = static_cast<std::int64_t>(o.heads);
  c.context = static_cast<std::int64_t>(o.context);
  c.data = o.data;
  c.micro_batch = static_cast<std::int64_t>(o.micro_batch);
  c.optimizer = o.optimizer;
  c.momentum = o.momentum;
  c.beta1 = o.beta1;
  c.beta2 = o.beta2;
  c.epsilon = o.epsilon;
  c.weight_decay = o.weight_decay;
  c.device = o.device;
  c.threads = static_cast<int>(o.threads);
  c.init_seed = seed_from("waggle init/" + o.run_id);
  c.data_seed = seed_from("waggle data/" + to_string(peer) + "/" + std::to_string(o.seed));
  return c;
}

void add_training(node_config& base, const run_options& o, const peer_id& peer,
                  const std::filesystem::path& data_dir) {
  auto learner = learner_from(o, peer);
  base.averaging =
    averaging_from(o, "gradients", "gradients", base.agreement ? base.agreement->hash() : digest{});
  auto& parts = base.training.emplace();
  auto& t = parts.training;
  t.target_batch_size = o.target_batch_size;
  t.max_epochs = o.epochs;
  auto shape = parse_schedule(o.schedule);
  t.schedule = {shape ? *shape : lr_schedule::shape::constant, o.lr, o.warmup_epochs, o.epochs, 0};
  t.step_interval = o.step_interval;
  t.join_timeout = o.initial_peers.empty() ? 0ms : o.join_timeout;
  t.averaging_timeout = o.averaging_timeout;
  t.auxiliary = o.auxiliary;
  t.checkpoint_interval = o.checkpoint_interval;
  if (o.resume)
    t.checkpoints.emplace(make_system_disk(), data_dir / "checkpoints");
  parts.make_learner = [learner] { return make_torch_learner(learner); };
}

command train_command() {
  return {
    "train",
    "One peer that trains: joins the run, or starts it.",
    "The first peer prints the line with which others join, on any machine:\n"
    "  waggle train --run-id demo --data /usr/share/common-licenses\n"
    "  waggle train --run-id demo --data /usr/share/common-licenses --initial-peers HOST:7700\n",
    {"run", "peer", "training", "averaging"},
    {},
    run_train};
}

} // namespace waggle
