#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

/// A round blocks, or training goes on meanwhile, and the change is added when the mean arrives
/// (`use_local_updates` with `delay_state_averaging`).
strategy averaging_parameters(lane_clock due, const strategy_settings& s) {
  lane parameters;
  parameters.what = lane_content::parameters;
  parameters.statistics = s.statistics;
  parameters.gradients = s.average_gradients;
  parameters.due = due;
  if (s.delay_state)
    parameters.overlap.ends = lane_overlap::until::it_arrives;
  parameters.merge.how = lane_merge::rule::add_change;
  return {parameters};
}

strategy make_by_samples(const strategy_settings& s) {
  auto made = averaging_parameters({lane_clock::unit::swarm_samples, s.target_batch}, s);
  made.schedule.epochs_per_round = s.epochs_per_round;
  return made;
}

strategy make_by_steps(const strategy_settings& s) {
  auto made = averaging_parameters({lane_clock::unit::first_peer, s.steps_period, s.grid()}, s);
  made.schedule.steps_in_epoch = s.steps_in_epoch;
  made.averages.counts_steps = s.steps_in_epoch > 0;
  return made;
}

constexpr std::string_view by_samples[]{"groups",
                                        "delay-state-averaging",
                                        "average-opt-statistics",
                                        "average-gradients",
                                        "target-batch-size",
                                        "average-state-every",
                                        "max-epoch-difference"};

constexpr std::string_view by_steps[]{"groups",
                                      "delay-state-averaging",
                                      "average-opt-statistics",
                                      "average-gradients",
                                      "averaging-steps-period",
                                      "averaging-time-period",
                                      "total-steps-in-epoch",
                                      "max-epoch-difference"};

constexpr std::string_view rounds_by_steps = "averages parameters every --averaging-steps-period";

} // namespace

const strategy_row strategies::local_updates{
  .name = "local-updates",
  .help = "Each peer steps at once; parameters are averaged every --target-batch-size samples, or "
          "every --average-state-every times as many.",
  .make = make_by_samples,
  .rounds = "averages parameters every --target-batch-size samples",
  .options = by_samples};

const strategy_row strategies::decentralized{
  .name = "decentralized",
  .help = "Each peer steps at once; parameters are averaged every --averaging-steps-period.",
  .make = make_by_steps,
  .rounds = rounds_by_steps,
  .options = by_steps};

// Without the scaling of Adam and its kin, at their rate the loss hardly falls.
const strategy_row strategies::decentralized_sgd{
  .name = "decentralized-sgd",
  .help = "The same with SGD; --lr is 0.1 if it is not set.",
  .make = make_by_steps,
  .rounds = rounds_by_steps,
  .options = by_steps,
  .optimizer = "sgd",
  .rate = 0.1};

const strategy_row strategies::decentralized_adam{
  .name = "decentralized-adam",
  .help = "The same with Adam, whose exp_avg_sq is averaged, too.",
  .make = make_by_steps,
  .rounds = rounds_by_steps,
  .options = by_steps,
  .optimizer = "adam",
  .averaged_statistics = "exp_avg_sq"};

} // namespace waggle
