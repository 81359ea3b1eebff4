#include "trainer/train_command.hpp"

#include <algorithm>
#include <chrono>

#include "actors/program/peer_process.hpp"
#include "actors/program/training_parts.hpp"
#include "runtime/cli/signals.hpp"
#include "runtime/cli/trainer_program.hpp"
#include "runtime/config/agreed_options.hpp"
#include "runtime/core/byte_io.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/try.hpp"
#include "runtime/crypto/digest.hpp"
#include "runtime/data/data_set.hpp"
#include "runtime/training/begun_from.hpp"
#include "runtime/training/checkpoint_store.hpp"

namespace waggle {

namespace {

std::uint64_t seed_from(std::string_view text) {
  auto hash = sha256(text);
  return byte_reader{hash.view()}.get<std::uint64_t>();
}

run_options without_from(run_options options) {
  options.from.clear();
  return options;
}

learner_factory makes_learner(const std::string& from, const learner_config& learner) {
  return begun_from([learner] { return make_torch_learner(learner); }, from, make_system_disk());
}

/// The checkpoints from which this peer may go on instead of --from.
checkpoint_store::search own_checkpoints(const run_options& options,
                                         const std::filesystem::path& data_dir) {
  auto folder = data_dir / "checkpoints";
  if (!options.resume || !std::filesystem::exists(folder))
    return {};
  auto made =
    with_training_options(makes_learner(options.from, learner_from(options, {})), options)();
  if (!made)
    return {}; // the check of the options says why
  const auto& table = (*made)->tensors();
  auto found = checkpoint_store{make_system_disk(), folder}.load_newest(
    (*made)->schema(), state_header_bytes + table.image_bytes(), &table);
  return found ? std::move(*found) : checkpoint_store::search{};
}

int run_train(const run_options& given) {
  hold_signals();
  auto options = without_from(given);
  if (auto usable = check_for_training(options); !usable)
    return bad_usage(usable.error().detail);
  auto process = peer_process::prepare(options);
  if (!process)
    return bad_usage(process.error().detail);
  auto& p = **process;
  log_data(p.log(), options);
  if (bool from = !given.from.empty(); from && own_checkpoints(options, p.data_dir()).newest) {
    p.note("--from " + given.from + " is not read: this peer goes on from its own checkpoint");
  } else if (from) {
    options = given;
    if (auto usable = check_for_training(options); !usable)
      return p.refuse(usable.error().detail);
    p.note("a new run begins with the parameters of " + options.from
           + ": epoch, history, statistics of the optimizer and schedules begin anew");
  }
  auto config = p.base_config();
  auto agreement = training_agreement(options, protocol_version);
  if (!agreement)
    return p.refuse(agreement.error().detail);
  config.agreement = std::make_shared<const run_agreement>(std::move(*agreement));
  add_training(config, options, p.self().id(), p.data_dir());
  config.training->training.leave = p.notice();
  auto peer = p.start(config);
  if (!peer)
    return p.refuse(peer.error().detail);
  p.print_start(config, *peer);

  using clock = std::chrono::steady_clock;
  caf::scoped_actor asker{p.system()};
  std::optional<clock::time_point> finished_at;
  std::optional<clock::time_point> all_finished_at;
  auto asked = clock::now();
  training_status last;
  auto ask = [&] {
    asked = clock::now();
    asker->request(peer->parts.trainer, 500ms, get_training_status{})
      .receive([&](const training_status& status) { last = status; },
               [](const caf::error&) { /* the trainer is ending */ });
  };
  training_status stopped;
  auto finished = [&] {
    bool leaves = p.notice()->within().has_value();
    if (clock::now() - asked < (leaves ? 50ms : 500ms))
      return false;
    ask();
    if (leaves)
      return last.phase == trainer_phase::finished;
    if (!options.run_ends() || last.phase != trainer_phase::finished)
      return false;
    finished_at = finished_at.value_or(clock::now());
    // Peers that are behind download the last state from peers that have finished.
    if (last.peers_behind > 0 && clock::now() - *finished_at < options.averaging_timeout)
      all_finished_at.reset();
    else
      all_finished_at = all_finished_at.value_or(clock::now());
    bool awaits_evaluation = !options.eval_data.empty() && last.eval_epoch != last.epoch
                             && clock::now() - *finished_at < options.averaging_timeout;
    return all_finished_at && clock::now() - *all_finished_at >= options.linger
           && !awaits_evaluation;
  };
  auto code = p.run_until_done(*peer, finished, &stopped);
  if (stopped.phase == trainer_phase::stopped) {
    if (!p.notice()->within())
      stopped.phase = last.phase; // what it was doing when it stopped
    stopped.peers_behind = last.peers_behind;
    last = stopped;
  }
  p.print(summary_of(last, options, p.data_dir()));
  if (code == exit_clean && finished_at && last.peers_behind > 0) {
    p.print("waggle: " + std::to_string(last.peers_behind)
            + " peers of the run did not reach its last epoch with this one");
    return exit_failed;
  }
  return code;
}

std::shared_ptr<sample_draws> draws_from(const run_options& o, const learner_config& learner,
                                         const peer_id& peer) {
  if (o.passes == 0)
    return nullptr;
  // Data that has changed since the options were checked is refused when the learner is made.
  auto counted = count_samples(learner);
  auto samples = counted.ok() ? *counted : 1;
  return std::make_shared<sample_draws>(peer, std::max(samples, std::uint64_t{1}), o.run());
}

} // namespace

status check_for_training(const run_options& options) {
  WAGGLE_TRY(usable, check_training_options(options));
  WAGGLE_TRY(agreed, training_agreement(options, protocol_version));
  auto learner = learner_from(options, {});
  WAGGLE_TRY(fits, check_learner_config(learner));
  if (options.passes > 0)
    if (auto counted = count_samples(learner); !counted)
      return counted.error();
  if (options.from.empty())
    return done{};
  WAGGLE_TRY(made, makes_learner(options.from, learner)());
  return done{};
}

std::string unused_checkpoint(const run_options& options, const std::filesystem::path& data_dir) {
  auto found = own_checkpoints(options, data_dir);
  return found.newest || found.skipped.empty() ? std::string{} : found.skipped.front().detail;
}

learner_config learner_from(const run_options& o, const peer_id& peer) {
  learner_config c{o};
  c.optimizer = optimizer_of(o);
  c.settles = !o.strategy->steps_each_pass();
  c.pass_weight_max = o.samples_per_round();
  c.offload_optimizer |= o.delay_optimizer_step;
  c.init_seed = seed_from("waggle init/" + o.run());
  c.data_seed = seed_from("waggle data/" + to_string(peer) + "/" + std::to_string(o.seed));
  return c;
}

void add_training(node_config& base, const run_options& o, const peer_id& peer,
                  const std::filesystem::path& data_dir) {
  auto learner = learner_from(o, peer);
  auto draws = learner.draws = draws_from(o, learner, peer);
  add_training_parts(
    base, o, makes_learner(o.from, learner), data_dir,
    [learner] { return make_evaluator(learner); }, draws);
}

command train_command() {
  return train_entry(run_train);
}

} // namespace waggle
