#include "runtime/training/strategy.hpp"

#include "runtime/core/check.hpp"
#include "runtime/core/named.hpp"

namespace waggle {

strategy collaborative(std::uint64_t target_batch) {
  lane gradients;
  gradients.what = lane_content::gradient;
  gradients.due = {lane_clock::unit::swarm_samples, target_batch, 0};
  gradients.merge.how = lane_merge::rule::optimizer_step;
  gradients.on_failure = failure_rule::own_gradient;
  return {inner_rule::hold, {gradients}, consistency_rule::exact};
}

strategy delayed_gradients(std::uint64_t target_batch) {
  auto result = collaborative(target_batch);
  result.lanes.front().overlap.ends = lane_overlap::until::next_boundary;
  return result;
}

strategy local_updates(lane_clock due, std::vector<std::string> statistics, bool delayed) {
  lane parameters;
  parameters.what = lane_content::parameters;
  parameters.statistics = std::move(statistics);
  parameters.due = due;
  if (delayed)
    parameters.overlap.ends = lane_overlap::until::it_arrives;
  parameters.merge.how = lane_merge::rule::add_change;
  // The mean of a single peer's parameters changes nothing, but its epochs have to end, too.
  parameters.quorum = due.makes_boundaries() ? 1 : 2;
  parameters.on_failure = failure_rule::skip;
  return {inner_rule::step, {parameters}, consistency_rule::approximate};
}

strategy streaming_diloco(const streaming_options& options) {
  WAGGLE_CHECK(options.fragments > 0 && options.every % options.fragments == 0, "fragments");
  WAGGLE_CHECK(options.overlap < options.every, "one flight per fragment");
  strategy result{inner_rule::step, {}, consistency_rule::anchor};
  auto gap = options.every / options.fragments;
  for (std::uint32_t i = 0; i < options.fragments; ++i) {
    lane fragment;
    fragment.what = lane_content::progress;
    fragment.part = {i, options.fragments};
    // The merge, not the begin, is at a multiple of the gap.
    auto phase = (gap * (i + 1) + options.every - options.overlap) % options.every;
    fragment.due = {lane_clock::unit::own_steps, options.every, phase};
    fragment.overlap = {lane_overlap::until::own_steps, options.overlap};
    fragment.merge = {lane_merge::rule::outer_step, options.outer_rate, options.keep_local};
    fragment.on_failure = failure_rule::skip;
    result.lanes.push_back(fragment);
  }
  return result;
}

namespace {

strategy make_collaborative(const strategy_settings& s) {
  auto made = s.delay_gradients ? delayed_gradients(s.target_batch) : collaborative(s.target_batch);
  made.lanes.front().coding = s.coding;
  return made;
}

strategy averaging_parameters(lane_clock due, const strategy_settings& s) {
  auto made = local_updates(due, s.statistics, s.delay_state);
  made.lanes.front().gradients = s.average_gradients;
  return made;
}

strategy make_local_updates(const strategy_settings& s) {
  auto made = averaging_parameters({lane_clock::unit::swarm_samples, s.target_batch, 0, 0}, s);
  made.schedule.epochs_per_round = s.epochs_per_round;
  return made;
}

strategy make_decentralized(const strategy_settings& s) {
  auto made =
    averaging_parameters({lane_clock::unit::first_peer, s.steps_period, 0, s.time_period}, s);
  made.schedule.steps_in_epoch = s.steps_in_epoch;
  made.lanes.front().counts_steps = s.steps_in_epoch > 0;
  return made;
}

constexpr strategy_row table[] = {
  {"collaborative", "Gradients are averaged every --target-batch-size samples of the swarm.",
   make_collaborative, false, false, "", ""},
  {"local-updates",
   "Each peer steps at once; parameters are averaged every --target-batch-size samples, or every "
   "--average-state-every times as many.",
   make_local_updates, true, false, "", ""},
  {"decentralized",
   "Each peer steps at once; parameters are averaged every --averaging-steps-period.",
   make_decentralized, true, true, "", ""},
  {"decentralized-sgd", "The same with SGD.", make_decentralized, true, true, "sgd", ""},
  {"decentralized-adam", "The same with Adam, whose exp_avg_sq is averaged, too.",
   make_decentralized, true, true, "adam", "exp_avg_sq"},
};

} // namespace

std::span<const strategy_row> strategy_table() {
  return table;
}

const strategy_row* find_strategy(std::string_view name) {
  return find_named(table, name);
}

strategy on_boundary(strategy now, const training_history& /*history*/) {
  return now;
}

} // namespace waggle
