#include "actors/program/training_parts.hpp"

#include <cmath>

#include <spdlog/fmt/fmt.h>
#include <spdlog/logger.h>

#include "actors/program/node_options.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/check.hpp"
#include "runtime/data/data_set.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

void log_data(spdlog::logger& log, const run_options& options, data_role role) {
  auto request = request_of(options, role);
  if (request.path.empty() || request.path == "synthetic")
    return;
  auto found = files_of(request);
  if (!found)
    return; // it was checked a moment ago; the model's thread will say what has happened
  if (auto what = found->left_out())
    log.log(found->reads_all_text() ? spdlog::level::info : spdlog::level::warn,
            "of {} {}, {} files are read; left out: {}", option_of(role), request.path,
            found->files.size(), *what);
  if (auto packed = packed_text(request))
    log.warn("{}", *packed);
}

} // namespace

learner_factory with_training_options(learner_factory make, const run_options& o) {
  auto schedule = schedule_of(o);
  WAGGLE_CHECK(schedule.ok(), "the options were checked");
  // Outside of the clipping: what is averaged is not clipped, and what a step uses is.
  auto steps =
    with_averaged_gradients(clipped(std::move(make), o.max_gradient_norm), o.how.average_gradients);
  return with_plateau(o.strategy.learners(std::move(steps)), schedule->plateau());
}

void add_training_parts(node_config& base, const run_options& o, learner_factory make,
                        const std::filesystem::path& data_dir, evaluator_factory evaluate,
                        std::shared_ptr<sample_draws> draws) {
  constexpr const char* kinds[]{"gradients", "params", "progress"}; // of lane_content
  const char* kind = kinds[static_cast<std::size_t>(o.strategy.make(o.how).averages.what)];
  // In one group, the prefix is that of the nodes that reduce for clients, whatever the strategy.
  base.averaging =
    averaging_from(o, o.many_groups ? "parameters" : "gradients", kind,
                   base.agreement ? base.agreement->hash() : digest{}, o.compute_threads());
  // The outgoing vector and the result: the next round begins after both have been used. Those of
  // the next fragment have other lengths.
  bool in_turn = o.strategy.make(o.how).averages.fragments > 1;
  base.averaging->averaging.vectors_kept = in_turn ? 0
                                           : o.how.coding.rank > 0
                                             ? 6
                                             : 2; // the factors of both rounds
  auto& parts = base.training.emplace();
  auto& t = parts.training;
  static_cast<training_options&>(t) = o;
  t.how.statistics = averaged_statistics_of(o);
  t.target_batch_size = o.samples_per_round();
  t.max_epochs = o.rounds_of_run();
  t.max_passes = o.passes;
  t.group_size_max = static_cast<std::uint32_t>(o.matchmaking.target_group_size);
  t.notice = unaveraged_squares(o);
  t.instead_of = peer_id::parse(o.instead_of).value_or(peer_id{});
  auto schedule = schedule_of(o);
  WAGGLE_CHECK(schedule.ok(), "the options were checked");
  t.schedule = std::move(*schedule);
  if (o.resume)
    t.checkpoints.emplace(make_system_disk(), data_dir / "checkpoints", o.keep);
  parts.donor.shares = o.share_state;
  if (evaluate && !o.eval_data.empty())
    parts.evaluation = evaluation_plan{
      .make = std::move(evaluate),
      .every = o.eval_every,
      .last = epoch_id{t.max_epochs},
      .ended = [passes = o.passes, how = o.strategy](const learner& model) {
        auto ledger = model.ledger();
        auto phase = how.phase(model.strategy_state());
        return (passes > 0 && ledger && ledger->passes() >= passes) || (phase && phase->ended());
      }};
  parts.make_learner = with_ledger(with_training_options(std::move(make), o), std::move(draws),
                                   o.strategy->steps_each_pass());
}

void log_data(spdlog::logger& log, const run_options& options) {
  log_data(log, options, data_role::training);
  log_data(log, options, data_role::evaluation);
}

std::string summary_of(const training_status& s, const run_options& options,
                       const std::filesystem::path& data_dir) {
  bool finished = s.phase == trainer_phase::finished;
  if (s.steps == 0 && !finished && !options.auxiliary)
    return "ended before it trained";
  auto loss = s.steps > 0 ? fmt::format("loss {:.4f}", s.loss) : "no pass of its own";
  if (!std::isnan(s.eval_accuracy))
    loss += fmt::format(", accuracy {:.4f} at epoch {}", s.eval_accuracy, s.eval_epoch.value());
  auto out =
    fmt::format("epoch {}{}, {}, {} samples used, {} dropped and {} kept here, {} rounds",
                s.epoch.value(), finished ? " (the last)" : "", loss, s.samples_used,
                s.samples_dropped, s.samples_pending(), s.rounds_complete + s.rounds_shrunk);
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator{data_dir / "checkpoints", none})
    if (options.resume && each.path().extension() == ".wgl")
      return out + "; the same command resumes from the checkpoints in "
             + (data_dir / "checkpoints").string();
  return out;
}

} // namespace waggle
