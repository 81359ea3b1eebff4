#include "actors/program/training_parts.hpp"

#include "actors/program/node_options.hpp"
#include "runtime/config/options.hpp"
#include "runtime/core/check.hpp"
#include "runtime/training/layers.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

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
  const char* kind = o.strategy->averages_parameters() ? "params" : "gradients";
  // In one group, the prefix is that of the nodes that reduce for clients, whatever the strategy.
  base.averaging =
    averaging_from(o, o.many_groups ? "parameters" : "gradients", kind,
                   base.agreement ? base.agreement->hash() : digest{}, o.compute_threads());
  // The outgoing vector and the result: the next round begins after both have been used.
  base.averaging->averaging.vectors_kept =
    o.how.coding.rank > 0 ? 6 : 2; // the factors of both rounds
  auto& parts = base.training.emplace();
  auto& t = parts.training;
  static_cast<training_options&>(t) = o;
  t.how.statistics = averaged_statistics_of(o);
  t.target_batch_size = o.samples_per_round();
  t.max_epochs = o.rounds_of_run();
  t.max_passes = o.passes;
  t.group_size_max = static_cast<std::uint32_t>(o.matchmaking.target_group_size);
  t.notice = unaveraged_squares(o);
  auto schedule = schedule_of(o);
  WAGGLE_CHECK(schedule.ok(), "the options were checked");
  t.schedule = std::move(*schedule);
  if (o.resume)
    t.checkpoints.emplace(make_system_disk(), data_dir / "checkpoints", o.keep);
  if (evaluate && !o.eval_data.empty())
    parts.evaluation = {std::move(evaluate), o.eval_every, epoch_id{t.max_epochs}, o.passes};
  parts.make_learner = with_ledger(with_training_options(std::move(make), o), std::move(draws));
}

} // namespace waggle
