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

strategy local_updates(std::uint64_t every, std::uint64_t phase) {
  lane parameters;
  parameters.what = lane_content::parameters;
  parameters.due = {lane_clock::unit::own_steps, every, phase};
  parameters.overlap.ends = lane_overlap::until::it_arrives;
  parameters.merge.how = lane_merge::rule::add_change;
  parameters.quorum = 2; // the mean of a single peer's parameters changes nothing
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

constexpr strategy_row table[] = {
  {"collaborative", "Gradients are averaged every target batch; all peers wait for the mean.",
   [](const strategy_settings& s) { return collaborative(s.target_batch); }},
  {"delayed_gradients", "The same, but training continues until the mean arrives.",
   [](const strategy_settings& s) { return delayed_gradients(s.target_batch); }},
  {"local_updates", "The optimizer steps locally; parameters are averaged now and then.",
   [](const strategy_settings& s) { return local_updates(s.every); }},
  {"streaming_diloco", "Local steps; an outer optimizer averages one fragment after the other.",
   [](const strategy_settings& s) { return streaming_diloco(s.streaming); }},
};

} // namespace

std::span<const strategy_row> strategy_table() {
  return table;
}

const strategy_row& run_strategy() {
  return *find_named(table, "collaborative");
}

strategy on_boundary(strategy now, const training_history& /*history*/) {
  return now;
}

} // namespace waggle
