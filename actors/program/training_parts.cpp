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
  WAGGLE_CHECK(schedule.ok(), o.schedule); // the options were checked
  // Outside of the clipping: what is averaged is not clipped, and what a step uses is.
  auto steps =
    with_averaged_gradients(clipped(std::move(make), o.max_gradient_norm), o.average_gradients);
  return with_plateau(with_strategy(std::move(steps), o.strategy), schedule->plateau());
}

void add_training_parts(node_config& base, const run_options& o, learner_factory make,
                        const std::filesystem::path& data_dir, evaluator_factory evaluate,
                        std::shared_ptr<sample_draws> draws) {
  bool many = o.groups == "moshpit";
  const char* kind = strategy_of(o).averages_parameters() ? "params" : "gradients";
  // In one group, the prefix is that of the nodes that reduce for clients, whatever the strategy.
  base.averaging =
    averaging_from(o, many ? "parameters" : "gradients", kind,
                   base.agreement ? base.agreement->hash() : digest{}, compute_threads(o));
  // The outgoing vector and the result: the next round begins after both have been used.
  base.averaging->averaging.vectors_kept = o.low_rank > 0 ? 6 : 2; // the factors of both rounds
  auto& parts = base.training.emplace();
  auto& t = parts.training;
  t.target_batch_size = samples_per_round(o);
  t.max_epochs = rounds_of(o);
  t.max_passes = o.passes;
  t.group_size_max = static_cast<std::uint32_t>(o.target_group_size);
  t.strategy = o.strategy;
  t.how = strategy_settings_of(o);
  t.notice = unaveraged_squares(o);
  t.epoch_difference_max = o.max_epoch_difference;
  t.averaging_alpha = o.alpha;
  t.delay_optimizer_step = o.delay_optimizer_step;
  t.many_groups = many;
  auto schedule = schedule_of(o);
  WAGGLE_CHECK(schedule.ok(), o.schedule); // the options were checked
  t.schedule = std::move(*schedule);
  t.step_interval = o.step_interval;
  t.join_timeout = o.join_timeout; // applies if there is an address to dial
  t.may_start_alone = o.start_alone;
  t.continue_on_split = o.on_split == "continue";
  t.averaging_timeout = o.averaging_timeout;
  t.sync_timeout = o.load_state_timeout;
  t.min_peers = o.min_peers;
  t.wait_for_peers = o.wait_for_peers;
  t.auxiliary = o.auxiliary;
  t.checkpoint_interval = o.checkpoint_interval;
  if (o.resume)
    t.checkpoints.emplace(make_system_disk(), data_dir / "checkpoints", o.keep);
  if (evaluate && o.eval_data)
    parts.evaluation = {std::move(evaluate), o.eval_every, epoch_id{t.max_epochs}, o.passes};
  parts.make_learner = with_ledger(with_training_options(std::move(make), o), std::move(draws));
}

} // namespace waggle
